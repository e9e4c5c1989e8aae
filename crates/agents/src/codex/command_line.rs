//! The command line and environment Codex is started with, as pure functions.
//!
//! The rules are in `docs/decisions/0010-codex-settings-sandbox-and-turns.md`. In short: the
//! directory is called untrusted, whatever the user's settings say of it, so nothing in it
//! configures Codex; what the user has set up for interactive work (MCP servers, hooks, plug-ins,
//! `notify`, rules that let commands out of the sandbox) is switched off; and the sandbox is said
//! every time (case H07).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use serde_json::json;

use super::Inner;
use super::probe::Known;
use super::settings::Settings;
use crate::{Request, ToolSurface};

/// Features that are off. An unknown name is passed over by the CLI, with a warning.
///
/// The first bounds how often it tries again; the others are programs and conversations that
/// nobody asked for, and sub-agents, whose steps and tokens its stream does not tell.
const OFF: [&str; 11] = [
    "unbounded_connection_retries",
    "hooks",
    "plugins",
    "remote_plugin",
    "apps",
    "multi_agent",
    "goals",
    "memories",
    "image_generation",
    "browser_use",
    "computer_use",
];

/// Program and arguments.
pub(super) fn argv(
    program: &Path,
    request: &Request,
    known: &Known,
    schema: Option<&Path>,
    inner: Inner,
) -> Vec<OsString> {
    let mut argv: Vec<OsString> = vec![program.into(), "exec".into()];
    let mut flag = |words: &[&str]| argv.extend(words.iter().map(OsString::from));
    flag(&["--json", "--color", "never", "--skip-git-repo-check"]);
    if known.ignore_rules {
        flag(&["--ignore-rules"]);
    }
    flag(&["--sandbox", sandbox(&request.tools, inner)]);
    for setting in settings(request, known) {
        flag(&["--config", &setting]);
    }
    if let Some(model) = &request.model {
        flag(&["--model", model]);
    }
    if let Some(schema) = schema {
        argv.extend(["--output-schema".into(), schema.into()]);
    }
    if let Some(session) = &request.session {
        argv.extend(["resume".into(), session.into()]);
    }
    argv.push("-".into());
    argv
}

fn sandbox(tools: &ToolSurface, inner: Inner) -> &'static str {
    match (tools, inner) {
        (ToolSurface::ReadOnly | ToolSurface::ReadEdit { .. }, Inner::Own) => "read-only",
        (ToolSurface::Workspace, Inner::Own) => "workspace-write",
        // The walls hold it then, or it is not started.
        (_, Inner::Off) => "danger-full-access",
    }
}

/// `name=value`, the value as TOML. A JSON string is a TOML string.
fn settings(request: &Request, known: &Known) -> Vec<String> {
    // A table replaces nothing but what it names, so the user's other projects stay as they are;
    // a dotted name with quotes in it would not be understood.
    let dir = json!(request.dir.to_string_lossy());
    let mut settings = vec![
        format!("projects={{{dir}={{trust_level=\"untrusted\"}}}}"),
        // Only the directory itself is the project: none above it has a say.
        "project_root_markers=[]".to_owned(),
        "approval_policy=\"never\"".to_owned(),
        "notify=[]".to_owned(),
        "web_search=\"disabled\"".to_owned(),
        "skills.include_instructions=false".to_owned(),
        // Commands do not see variables that look like keys.
        "shell_environment_policy.ignore_default_excludes=false".to_owned(),
        "shell_environment_policy.exclude=[\"RUST_LOG\"]".to_owned(),
        "sandbox_workspace_write.exclude_slash_tmp=true".to_owned(),
        "sandbox_workspace_write.network_access=true".to_owned(),
        "sandbox_workspace_write.writable_roots=[]".to_owned(),
    ];
    settings.extend(OFF.map(|it| format!("features.{it}=false")));
    if !known.servers.is_empty() {
        let servers = known.servers.iter();
        let servers = servers.map(|it| format!("{}={{enabled=false}}", json!(it)));
        let servers = servers.collect::<Vec<_>>().join(",");
        settings.push(format!("mcp_servers={{{servers}}}"));
    }
    settings
}

/// The prompt as text. Unlike Claude Code it looks for no commands and no file names in it.
pub(super) fn standard_input(prompt: &str, instructions: &[&str]) -> Vec<u8> {
    let mut text = prompt.to_owned();
    if !instructions.is_empty() {
        let files = instructions.join(" and ");
        // An untrusted directory's AGENTS.md is not loaded by itself.
        text.push_str(&format!(
            "\n\nFirst read {files} in the working directory: the project's own instructions.\n"
        ));
    }
    text.into_bytes()
}

/// Variables that decide where requests go and who pays.
const OURS: [&str; 9] = [
    "CODEX_ACCESS_TOKEN",
    "CODEX_API_KEY",
    "CODEX_CA_CERTIFICATE",
    "CODEX_HOME",
    "OPENAI_API_KEY",
    "OPENAI_ORGANIZATION",
    "OPENAI_PROJECT",
    "SSL_CERT_FILE",
    "AZURE_OPENAI_API_KEY",
];

/// The part of our own environment the CLI needs to reach its account.
pub(super) fn account(
    ours: impl IntoIterator<Item = (OsString, OsString)>,
    settings: &Settings,
) -> BTreeMap<OsString, OsString> {
    let named = |name: &str| {
        OURS.contains(&name)
            || settings.key.as_deref() == Some(name)
            || settings.keys.iter().any(|it| it == name)
    };
    ours.into_iter()
        .filter(|(name, _)| name.to_str().is_some_and(named))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::claude::tests::request;

    fn line(request: &Request, servers: &[&str], inner: Inner) -> String {
        let known = Known {
            version: None,
            output_schema: true,
            ignore_rules: true,
            servers: servers.iter().map(|it| (*it).to_owned()).collect(),
        };
        let schema = request.schema.as_ref().map(|_| Path::new("/s.json"));
        let argv = argv(Path::new("codex"), request, &known, schema, inner);
        let words: Vec<_> = argv.iter().map(|it| it.to_string_lossy()).collect();
        words.join(" ").replace(" --", "\n--")
    }

    #[test]
    fn h07_the_sandbox_and_the_trust_are_said_every_time_also_when_resuming() {
        let mut request = request();
        insta::assert_snapshot!(line(&request, &[], Inner::Own), @r#"
        codex exec
        --json
        --color never
        --skip-git-repo-check
        --ignore-rules
        --sandbox workspace-write
        --config projects={"/work"={trust_level="untrusted"}}
        --config project_root_markers=[]
        --config approval_policy="never"
        --config notify=[]
        --config web_search="disabled"
        --config skills.include_instructions=false
        --config shell_environment_policy.ignore_default_excludes=false
        --config shell_environment_policy.exclude=["RUST_LOG"]
        --config sandbox_workspace_write.exclude_slash_tmp=true
        --config sandbox_workspace_write.network_access=true
        --config sandbox_workspace_write.writable_roots=[]
        --config features.unbounded_connection_retries=false
        --config features.hooks=false
        --config features.plugins=false
        --config features.remote_plugin=false
        --config features.apps=false
        --config features.multi_agent=false
        --config features.goals=false
        --config features.memories=false
        --config features.image_generation=false
        --config features.browser_use=false
        --config features.computer_use=false -
        "#);
        request.session = Some("SID".to_owned());
        request.tools = ToolSurface::ReadOnly;
        request.schema = Some(json!({"type": "object"}));
        request.model = Some("m".to_owned());
        request.dir = PathBuf::from("/a \"b\"");
        let line = line(&request, &["x", "a.b"], Inner::Own);
        let lines: Vec<_> = line.lines().collect();
        assert!(lines.contains(&"--sandbox read-only"), "{line}");
        let trust = r#"--config projects={"/a \"b\""={trust_level="untrusted"}}"#;
        assert!(lines.contains(&trust), "{line}");
        let servers = r#"--config mcp_servers={"x"={enabled=false},"a.b"={enabled=false}}"#;
        assert!(lines.contains(&servers), "{line}");
        assert!(
            line.ends_with("--model m\n--output-schema /s.json resume SID -"),
            "{line}"
        );
    }

    #[test]
    fn its_own_sandbox_is_off_only_where_one_of_ours_leaves_no_room_for_it() {
        let line = line(&request(), &[], Inner::Off);
        assert!(line.contains("--sandbox danger-full-access"), "{line}");
    }

    #[test]
    fn i03_the_environment_is_an_allow_list() {
        let settings = Settings {
            keys: vec!["MY_KEY".into()],
            ..Settings::default()
        };
        let ours = [
            "OPENAI_API_KEY",
            "MY_KEY",
            "GITHUB_TOKEN",
            "AWS_SECRET_ACCESS_KEY",
        ];
        let account = account(ours.map(|it| (it.into(), "x".into())), &settings);
        let names: Vec<_> = account.keys().collect();
        assert_eq!(names, ["MY_KEY", "OPENAI_API_KEY"]);
    }
}
