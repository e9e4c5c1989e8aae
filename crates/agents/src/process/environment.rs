//! What a child gets to know of our environment, and where its program is.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Names a child inherits. Nothing that carries a credential, nothing that makes a program load
/// code (`NODE_OPTIONS`, `LD_PRELOAD`, `PYTHONSTARTUP`), and no `GIT_*`: a `GIT_DIR` inherited
/// from a hook would send the agent's git to another repository.
const NAMES: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "TZ",
    "TERM",
    "COLORTERM",
    "TMPDIR",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "all_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "GOPATH",
    "GOCACHE",
    "JAVA_HOME",
    "NVM_DIR",
    "PYENV_ROOT",
    "VIRTUAL_ENV",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
];
const PREFIXES: &[&str] = &["LC_", "XDG_", "NIX_"];

/// Keys, endpoints and switches of model providers, for back ends that cannot know which one
/// their program talks to.
const PROVIDERS: &[&str] = &[
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_MODEL",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "OPENAI_ORG_ID",
    "AZURE_OPENAI_API_KEY",
    "AZURE_OPENAI_ENDPOINT",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "OPENROUTER_API_KEY",
    "MISTRAL_API_KEY",
    "DEEPSEEK_API_KEY",
    "GROQ_API_KEY",
    "XAI_API_KEY",
    "OLLAMA_HOST",
];

/// The variables a child inherits from us: an allow-list (`PATH`, `HOME`, `LANG`, `TERM`,
/// proxies, `XDG_*`, toolchain homes …), never `GIT_*` and never credentials of other tools.
pub fn inherited_environment() -> BTreeMap<OsString, OsString> {
    of(std::env::vars_os(), |name| {
        NAMES.iter().any(|it| name == *it)
            || PREFIXES
                .iter()
                .any(|it| name.as_bytes().starts_with(it.as_bytes()))
    })
}

/// The model providers' variables among ours. Only a back end that starts a program which talks
/// to a model adds them; [`inherited_environment`] never does.
pub fn provider_environment() -> BTreeMap<OsString, OsString> {
    of(std::env::vars_os(), |name| {
        PROVIDERS.iter().any(|it| name == *it)
    })
}

fn of(
    variables: impl Iterator<Item = (OsString, OsString)>,
    wanted: impl Fn(&OsStr) -> bool,
) -> BTreeMap<OsString, OsString> {
    variables.filter(|(name, _)| wanted(name)).collect()
}

/// Where a program is: itself when its name has a slash (relative to `dir`), otherwise the first
/// executable file of that name on our `PATH`. Relative entries of `PATH` are skipped, so that a
/// repository cannot bring its own `claude`.
pub fn find_program(name: &OsStr, dir: &Path) -> Option<PathBuf> {
    let path = std::env::var_os("PATH");
    find_program_on(name, dir, path.as_deref())
}

pub(super) fn find_program_on(name: &OsStr, dir: &Path, path: Option<&OsStr>) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        let program = dir.join(name);
        return is_executable(&program).then_some(program);
    }
    if name.is_empty() {
        return None;
    }
    std::env::split_paths(path.unwrap_or(OsStr::new("/usr/local/bin:/usr/bin:/bin")))
        .filter(|entry| entry.is_absolute())
        .map(|entry| entry.join(name))
        .find(|program| is_executable(program))
}

fn is_executable(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i03_a_child_never_inherits_git_variables_credentials_or_code_to_load() {
        let named = |name: &str| {
            NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        };
        for secret in [
            "GIT_DIR",
            "GIT_SSH_COMMAND",
            "GITHUB_TOKEN",
            "AWS_SECRET_ACCESS_KEY",
            "ANTHROPIC_API_KEY",
            "OPENAI_API_KEY",
            "NPM_TOKEN",
            "SSH_AUTH_SOCK",
            "NODE_OPTIONS",
            "LD_PRELOAD",
            "BASH_ENV",
            "DEX_GUARD_EXE",
        ] {
            assert!(!named(secret), "{secret}");
        }
        for wanted in ["PATH", "HOME", "LC_ALL", "XDG_RUNTIME_DIR", "NIX_PATH"] {
            assert!(named(wanted), "{wanted}");
        }
    }

    #[test]
    fn a_relative_path_entry_does_not_find_the_repositorys_own_program() {
        let dir = tempfile::tempdir().expect("a directory");
        let program = dir.path().join("claude");
        std::fs::write(&program, "#!/bin/sh\n").expect("writes");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("chmod");
        let on = |path: &str| find_program_on("claude".as_ref(), dir.path(), Some(path.as_ref()));
        assert_eq!(on(".:"), None);
        assert_eq!(on(&dir.path().display().to_string()), Some(program));
    }
}
