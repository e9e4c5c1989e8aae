//! The configuration, read once at open, and what it must not make git run.
//!
//! Programs named by the user's or the system's configuration are the user's choice. Those named
//! only in the repository's own files may have been put there by anyone, an agent included, so
//! they are blanked on every call unless [`Repo::allow_filters`] was given.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;

use super::Repo;
use crate::{Git, GitError};

/// Every value, in git's order: the last one of a key counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    values: Vec<Value>,
    allow_filters: bool,
}

#[derive(Debug, Clone)]
struct Value {
    local: bool,
    key: String,
    value: Option<String>,
}

impl Settings {
    pub(super) fn read(git: &Git) -> Result<Settings, GitError> {
        let raw = git
            .read(["config", "--list", "-z", "--show-scope", "--includes"])
            .bytes()?;
        let text = String::from_utf8_lossy(&raw);
        let mut fields = text.split('\0');
        let mut values = Vec::new();
        while let (Some(scope), Some(entry)) = (fields.next(), fields.next()) {
            let (key, value) = match entry.split_once('\n') {
                Some((key, value)) => (key, Some(value.to_owned())),
                None => (entry, None),
            };
            // What we pass with -c is ours, not the repository's.
            if scope != "command" {
                values.push(Value {
                    local: matches!(scope, "local" | "worktree"),
                    key: key.to_owned(),
                    value,
                });
            }
        }
        Ok(Settings {
            values,
            allow_filters: false,
        })
    }

    /// A boolean as git reads it; none when it is not set.
    pub(crate) fn flag(&self, key: &str) -> Option<bool> {
        let found = self.values.iter().rev().find(|it| it.key == key)?;
        let Some(text) = &found.value else {
            return Some(true);
        };
        let text = text.to_ascii_lowercase();
        Some(!matches!(text.as_str(), "" | "false" | "no" | "off" | "0"))
    }

    fn last(&self, key: &str, wanted: impl Fn(&Value) -> bool) -> Option<&str> {
        self.values
            .iter()
            .rev()
            .find(|it| it.key == key && wanted(it))
            .map(|it| it.value.as_deref().unwrap_or("true"))
    }

    fn users(&self, key: &str) -> Option<&str> {
        self.last(key, |it| !it.local)
    }

    /// Objects may be missing until fetched.
    pub(super) fn partial(&self) -> bool {
        self.values.iter().any(|it| {
            it.key == "extensions.partialclone"
                || (it.key.starts_with("remote.") && it.key.ends_with(".promisor"))
        })
    }

    /// Names of the subsection of `section.<name>.<variable>` keys with a local value.
    fn local_names(&self, section: &str, variables: &[&str]) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for it in self.values.iter().filter(|it| it.local) {
            let inside = it
                .key
                .strip_prefix(section)
                .and_then(|rest| rest.strip_prefix('.'));
            if let Some((name, variable)) = inside.and_then(|rest| rest.rsplit_once('.'))
                && variables.contains(&variable)
            {
                names.insert(name.to_owned());
            }
        }
        names
    }

    /// Filter drivers that may not run: only the repository's own configuration defines them,
    /// or it adds a `process` to one of the user's. Git prefers that to `clean` and `smudge`
    /// even when it is blank, so such a driver cannot be put back to what the user said.
    pub(crate) fn blanked_filters(&self) -> BTreeSet<String> {
        if self.allow_filters {
            return BTreeSet::new();
        }
        let users = |name: &str, variable: &str| {
            let key = format!("filter.{name}.{variable}");
            self.users(&key).is_some()
        };
        let processes = self.local_names("filter", &["process"]);
        let mut names = self.local_names("filter", FILTER_PROGRAMS);
        names.retain(|name| {
            let known = FILTER_PROGRAMS.iter().any(|variable| users(name, variable));
            !known || (processes.contains(name) && !users(name, "process"))
        });
        names
    }

    /// `-c` pairs that undo what the repository's own configuration would run.
    fn blanks(&self) -> Vec<OsString> {
        let mut pairs: BTreeMap<String, String> = BTreeMap::new();
        if !self.allow_filters {
            for variable in ["clean", "smudge", "process", "required"] {
                for name in self.local_names("filter", &[variable]) {
                    let key = format!("filter.{name}.{variable}");
                    let blank = if variable == "required" { "false" } else { "" };
                    let value = self.users(&key).unwrap_or(blank).to_owned();
                    pairs.insert(key, value);
                }
            }
        }
        for name in self.local_names("merge", &["driver"]) {
            let key = format!("merge.{name}.driver");
            // Without a driver git stops; one that always fails leaves a conflict to resolve.
            let value = self.users(&key).unwrap_or("false").to_owned();
            pairs.insert(key, value);
        }
        for (key, built_in) in PROGRAMS {
            if self.values.iter().any(|it| it.local && it.key == *key) {
                pairs.insert(
                    (*key).to_owned(),
                    self.users(key).unwrap_or(built_in).to_owned(),
                );
            }
        }
        // Through these a fetch of missing objects, which any read may be, starts a program.
        for (variable, built_in) in [
            ("uploadpack", "git-upload-pack"),
            ("receivepack", "git-receive-pack"),
        ] {
            for name in self.local_names("remote", &[variable]) {
                let key = format!("remote.{name}.{variable}");
                let value = self.users(&key).unwrap_or(built_in).to_owned();
                pairs.insert(key, value);
            }
        }
        pairs
            .into_iter()
            .map(|(key, value)| format!("{key}={value}").into())
            .chain(self.credential_helpers())
            .collect()
    }

    /// An empty helper clears the list git has collected so far; the user's own follow again.
    fn credential_helpers(&self) -> Vec<OsString> {
        let is_helper =
            |it: &&Value| it.key.starts_with("credential.") && it.key.ends_with(".helper");
        if !self.values.iter().any(|it| it.local && is_helper(&it)) {
            return Vec::new();
        }
        let mut pairs = vec![OsString::from("credential.helper=")];
        for it in self.values.iter().filter(|it| !it.local && is_helper(it)) {
            let value = it.value.as_deref().unwrap_or("");
            pairs.push(format!("{}={value}", it.key).into());
        }
        pairs
    }

    fn ssh(&self) -> String {
        let program = self.users("core.sshcommand").unwrap_or("ssh");
        format!("{program} -o BatchMode=yes")
    }

    /// Makes `git` run with these settings in mind.
    pub(super) fn restrain(&self, git: &mut Git) {
        git.config = self.blanks();
        git.ssh = self.ssh();
    }
}

/// Keys that name one program, or let one be named, with what git has where nobody sets them.
/// Whether commits are signed may be the repository's word; what signs them may not.
const PROGRAMS: &[(&str, &str)] = &[
    ("core.askpass", ""),
    ("core.gitproxy", ""),
    ("core.alternaterefscommand", ""),
    ("gpg.program", "gpg"),
    ("gpg.openpgp.program", "gpg"),
    ("gpg.x509.program", "gpgsm"),
    ("gpg.ssh.program", "ssh-keygen"),
    ("gpg.ssh.defaultkeycommand", ""),
    ("protocol.allow", "user"),
    ("protocol.ext.allow", "never"),
];

const FILTER_PROGRAMS: &[&str] = &["clean", "smudge", "process"];

impl Repo {
    /// Whether filter drivers named only in the repository's own configuration may run
    /// (`dex init --allow-filters`). They may not unless this was called with `true`.
    pub fn allow_filters(&mut self, allow: bool) {
        self.settings.allow_filters = allow;
        self.settings.restrain(&mut self.git);
    }

    /// `filter.<name>.<variable>=<program>` of every filter that only the repository's own
    /// configuration names, sorted: what `--allow-filters` would let run.
    pub fn own_filters(&self) -> Result<Vec<String>, GitError> {
        let settings = Settings {
            allow_filters: false,
            ..Settings::read(&self.git)?
        };
        let blanked = settings.blanked_filters();
        let of_filter = |key: &str| {
            let rest = key.strip_prefix("filter.")?;
            let (name, variable) = rest.rsplit_once('.')?;
            let known = FILTER_PROGRAMS.contains(&variable) || variable == "required";
            (known && blanked.contains(name)).then_some(())
        };
        let mut found: Vec<String> = settings
            .values
            .iter()
            .filter(|it| it.local && of_filter(&it.key).is_some())
            .map(|it| format!("{}={}", it.key, it.value.as_deref().unwrap_or("true")))
            .collect();
        found.sort();
        Ok(found)
    }

    /// A config value as git sees it from here (any scope), or none.
    pub fn config(&self, key: &str) -> Result<Option<String>, GitError> {
        let out = self.git.read(["config", "-z", "--get", key]).output()?;
        match out.status {
            Some(0) => {
                let text = String::from_utf8_lossy(&out.stdout);
                Ok(Some(text.trim_end_matches('\0').to_owned()))
            }
            Some(1) => Ok(None),
            _ => Err(out.failed("config")),
        }
    }
}
