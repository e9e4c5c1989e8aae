//! The back ends, and how each is made to play a scenario.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use agents::Agent;
use agents::acp::Acp;
use agents::claude::Claude;
use agents::codex::{Codex, Inner};
use serde_json::{Value, json};
use testkit::fake_model::Turn;
use testkit::real_agent;

use crate::scenario::Scenario;
use crate::world::{At, UNDER_WAY, World};

/// How a scenario is produced.
pub(crate) enum How {
    /// The real CLI; what the model says.
    Real(fn(&At) -> Vec<Turn>),
    /// A program of ours; its script (`fake_cli`).
    Fake(&'static str),
    /// The row's own program of ours; its script.
    Acted(fn(&At) -> Value),
    /// Not at all: why this back end does not have it.
    Not(&'static str),
}

/// A back end.
pub(crate) trait Row {
    fn name(&self) -> &'static str;
    /// The real CLI; none when the tests that need the network are left out.
    fn program(&self) -> Option<&'static Path>;
    fn agent(&self, program: PathBuf, environment: BTreeMap<OsString, OsString>) -> Box<dyn Agent>;
    /// A model the CLI knows.
    fn model(&self) -> &'static str;
    fn reports_dollars(&self) -> bool;
    /// The variables, and the files in its home, with which it reaches the world's model.
    fn account(&self, world: &World, scenario: Scenario) -> Vec<(OsString, OsString)>;
    /// Shell functions that speak its stream, after answers to what our probes ask.
    fn functions(&self) -> &'static str;
    /// Plays scripts of its own kind ([`How::Acted`]).
    fn actor(&self) -> PathBuf {
        panic!("{} has none", self.name())
    }
    fn how(&self, scenario: Scenario) -> How;
}

/// Everyone who takes part.
pub(crate) const ROWS: &[&dyn Row] = &[&ClaudeCode, &CodexCli, &AnyAcp];

/// Scripts that are the same whoever speaks.
fn misbehaves(scenario: Scenario) -> Option<How> {
    Some(How::Fake(match scenario {
        Scenario::OutputCap => "begin; while :; do says 'again and again and again'; done",
        Scenario::Flood => {
            "begin; yes 0123456789012345678901234567890123456789 | head -c 1000000000; ends"
        }
        Scenario::Crash => "begin; calls 1; echo 'it broke' >&2; kill -9 $$",
        Scenario::Garbage => {
            "printf '\\377\\376\\0{\\n'; echo 'Warning: [x]'; begin; echo '{\"type\":7}'; \
             echo '[1,'; says \"a$(printf '\\377')b\"; ends"
        }
        Scenario::HalfALine => "begin; says x; ends | head -c 20; exit 0",
        Scenario::IgnoresTerm => "trap '' TERM INT HUP; begin; while :; do sleep 1 & wait $!; done",
        Scenario::ForksAway => {
            "begin; (setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' \
             >/dev/null 2>&1 &); ends"
        }
        Scenario::ExitsZeroAfterFailing => "begin; says 'all done'; fails; exit 0",
        Scenario::HangsOnRefusal => "begin; while :; do refused; sleep 0.3; done",
        _ => return None,
    }))
}

struct ClaudeCode;

impl Row for ClaudeCode {
    fn name(&self) -> &'static str {
        "claude"
    }

    fn program(&self) -> Option<&'static Path> {
        real_agent::claude()
    }

    fn agent(&self, program: PathBuf, environment: BTreeMap<OsString, OsString>) -> Box<dyn Agent> {
        Box::new(Claude {
            program,
            environment,
        })
    }

    fn model(&self) -> &'static str {
        "claude-sonnet-4-5"
    }

    fn reports_dollars(&self) -> bool {
        true
    }

    fn account(&self, world: &World, scenario: Scenario) -> Vec<(OsString, OsString)> {
        // Only a subscription has a limit that comes back.
        let key = match scenario {
            Scenario::Quota => "CLAUDE_CODE_OAUTH_TOKEN",
            _ => "ANTHROPIC_API_KEY",
        };
        vec![
            ("ANTHROPIC_BASE_URL".into(), world.url().into()),
            (key.into(), "dummy-key".into()),
        ]
    }

    fn functions(&self) -> &'static str {
        r#"case "$1" in --help) echo '--input-format --permission-mode --session-id --setting-sources
--strict-mcp-config --tools --max-budget-usd --json-schema'; exit;; esac
begin() { echo '{"type":"system","subtype":"init","session_id":"s","tools":["Bash"],"model":"claude-sonnet-4-5"}'; }
says() { printf '{"type":"assistant","parent_tool_use_id":null,"message":{"content":[{"type":"text","text":"%s"}]}}\n' "$1"; }
calls() { printf '{"type":"assistant","parent_tool_use_id":null,"message":{"id":"m%s","content":[{"type":"tool_use","id":"t%s","name":"Bash","input":{"command":"true"}}],"usage":{"input_tokens":10}}}\n' "$1" "$1"; }
refused() { echo '{"type":"system","subtype":"api_retry","attempt":1,"error_status":401,"error":"authentication_failed"}'; }
fails() { echo '{"subtype":"success","is_error":true,"result":"it gave up","total_cost_usd":0.01,"session_id":"s","type":"result"}'; }
ends() { echo '{"subtype":"success","is_error":false,"result":"done","total_cost_usd":0.01,"session_id":"s","type":"result"}'; }"#
    }

    fn how(&self, scenario: Scenario) -> How {
        let real = match scenario {
            Scenario::Edit => |at: &At| {
                let file = at.file("a.txt");
                vec![
                    Turn::call("Read", json!({"file_path": file})),
                    Turn::call(
                        "Edit",
                        json!({"file_path": file, "old_string": "hello", "new_string": "goodbye"}),
                    ),
                    Turn::text("The greeting is changed."),
                ]
            },
            Scenario::Steps => |_: &At| {
                vec![
                    bash("echo 1 > one.txt"),
                    bash("cp one.txt two.txt; echo 2 >> two.txt"),
                    bash("false"),
                    Turn::text("done"),
                ]
            },
            Scenario::RefusedTool => |at: &At| {
                vec![
                    bash("touch made.txt"),
                    Turn::call(
                        "Write",
                        json!({"file_path": at.file("a.txt"), "content": "x"}),
                    ),
                    Turn::text("done"),
                ]
            },
            Scenario::DollarCap | Scenario::Overshoot | Scenario::TurnCap => {
                |_: &At| vec![bash("true")]
            }
            Scenario::WallCap | Scenario::IdleCap => {
                |_: &At| vec![bash("setsid sleep 300 >/dev/null 2>&1 &"), Turn::hang()]
            }
            Scenario::Cancel => {
                |_: &At| vec![bash("setsid sleep 300 >/dev/null 2>&1 &"), Turn::hang()]
            }
            Scenario::Resume => |_: &At| vec![Turn::text("one"), Turn::text("two")],
            Scenario::NoCredentials => |_: &At| vec![Turn::text("never asked")],
            Scenario::Overload => |_: &At| vec![Turn::error(529, "Overloaded")],
            Scenario::Quota => |at: &At| vec![Turn::usage_limit(at.quota_until)],
            Scenario::HostileRepository => {
                |_: &At| vec![bash("echo ran > ran.txt"), Turn::text("done")]
            }
            _ => return misbehaves(scenario).expect("every scenario is one or the other"),
        };
        How::Real(real)
    }
}

fn bash(command: &str) -> Turn {
    Turn::call("Bash", json!({"command": command, "description": "a step"}))
}

struct CodexCli;

impl Row for CodexCli {
    fn name(&self) -> &'static str {
        "codex"
    }

    fn program(&self) -> Option<&'static Path> {
        real_agent::codex()
    }

    fn agent(&self, program: PathBuf, environment: BTreeMap<OsString, OsString>) -> Box<dyn Agent> {
        Box::new(Codex {
            program,
            environment,
            inner: Inner::Own,
        })
    }

    /// One that is offered the patch tool.
    fn model(&self) -> &'static str {
        "gpt-5.5"
    }

    fn reports_dollars(&self) -> bool {
        false
    }

    fn account(&self, world: &World, _: Scenario) -> Vec<(OsString, OsString)> {
        // The user trusts the project: that alone must not let it configure anything.
        let settings = format!(
            "model_provider = \"fake\"\n[model_providers.fake]\nname = \"fake\"\n\
             base_url = \"{}/v1\"\nwire_api = \"responses\"\nenv_key = \"FAKE_KEY\"\n\
             [projects.{:?}]\ntrust_level = \"trusted\"\n\
             [mcp_servers.mine]\ncommand = \"touch\"\nargs = [{:?}]\n",
            world.url(),
            world.work(),
            world.beside("canary"),
        );
        std::fs::write(world.beside("home/.codex/config.toml"), settings).expect("writes");
        vec![("FAKE_KEY".into(), "dummy-key".into())]
    }

    fn functions(&self) -> &'static str {
        r#"case "$1 $2" in
--version*) echo 'codex-cli 9.9.9'; exit;;
'exec --help') echo '--json --sandbox --config --skip-git-repo-check --output-schema'; exit;;
'login status') echo 'Logged in'; exit;;
'mcp list') echo '[]'; exit;;
esac
begin() { echo '{"type":"thread.started","thread_id":"s"}'; echo '{"type":"turn.started"}'; }
says() { printf '{"type":"item.completed","item":{"id":"i","type":"agent_message","text":"%s"}}\n' "$1"; }
calls() { printf '{"type":"item.completed","item":{"id":"t%s","type":"command_execution","command":"true","aggregated_output":"","exit_code":0,"status":"completed"}}\n' "$1"; }
refused() { echo '{"type":"error","message":"Reconnecting... 1/5 (unexpected status 401 Unauthorized: no)"}'; }
fails() { echo '{"type":"turn.failed","error":{"message":"it gave up"}}'; }
ends() { echo '{"type":"turn.completed","usage":{"input_tokens":10,"cached_input_tokens":0,"output_tokens":1}}'; }"#
    }

    fn how(&self, scenario: Scenario) -> How {
        let real = match scenario {
            Scenario::Edit => |_: &At| {
                let patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n-hello\n+goodbye\n\
                     *** End Patch\n";
                vec![Turn::patch(patch), Turn::text("The greeting is changed.")]
            },
            Scenario::Steps => |_: &At| {
                vec![
                    Turn::command("echo 1 > one.txt"),
                    Turn::command("cp one.txt two.txt; echo 2 >> two.txt"),
                    Turn::command("false"),
                    Turn::text("done"),
                ]
            },
            Scenario::RefusedTool => |_: &At| {
                let patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n-hello\n+goodbye\n\
                     *** End Patch\n";
                vec![
                    Turn::command("touch made.txt"),
                    Turn::patch(patch),
                    Turn::text("done"),
                ]
            },
            Scenario::DollarCap | Scenario::Overshoot => {
                return How::Not("it reports no dollars");
            }
            Scenario::TurnCap => |_: &At| vec![Turn::command("true")],
            Scenario::WallCap | Scenario::IdleCap | Scenario::Cancel => |_: &At| {
                vec![
                    Turn::command("setsid sleep 300 >/dev/null 2>&1 &"),
                    Turn::hang(),
                ]
            },
            Scenario::Resume => |_: &At| vec![Turn::text("one"), Turn::text("two")],
            Scenario::NoCredentials => |_: &At| vec![Turn::text("never asked")],
            Scenario::Overload => |_: &At| vec![Turn::error(503, "overloaded")],
            Scenario::Quota => |at: &At| vec![Turn::usage_limit(at.quota_until)],
            Scenario::HostileRepository => {
                |_: &At| vec![Turn::command("echo ran > ran.txt"), Turn::text("done")]
            }
            _ => return misbehaves(scenario).expect("every scenario is one or the other"),
        };
        How::Real(real)
    }
}

/// The Agent Client Protocol, spoken by `examples/acp-agent.rs`. The agents people use speak it in
/// `tests/real_acp`, by `.ci/slow`.
struct AnyAcp;

/// One prompt of these steps, from an agent that offers the model.
fn acts(steps: Value) -> Value {
    let offered = json!([{"id": "m", "name": "Model", "category": "model", "type": "select",
        "currentValue": "small", "options": [{"value": "big", "name": "b"}]}]);
    json!({
        "answers": {
            "session/new": {"sessionId": "new-session", "configOptions": offered},
            "session/load": {"configOptions": offered},
        },
        "prompts": [steps],
    })
}

fn dollars(amount: f64) -> Value {
    json!({"update": {"sessionUpdate": "usage_update", "used": 1, "size": 2,
        "cost": {"amount": amount, "currency": "USD"}}})
}

fn ends() -> Value {
    json!({"end": {"stopReason": "end_turn",
        "usage": {"inputTokens": 1000, "outputTokens": 50, "totalTokens": 1050}}})
}

fn writes(content: &str) -> Value {
    json!({"ask": "fs/write_text_file",
        "params": {"sessionId": "new-session", "path": "{dir}/a.txt", "content": content}})
}

fn asks_to_run(id: &str) -> Value {
    json!({"ask": "session/request_permission", "params": {
        "sessionId": "new-session",
        "toolCall": {"toolCallId": id, "title": "a step", "kind": "execute"},
        "options": [{"optionId": "once", "name": "o", "kind": "allow_once"},
            {"optionId": "no", "name": "n", "kind": "reject_once"}],
    }})
}

/// A call with its result.
fn called(id: &str, status: &str) -> Value {
    json!({"update": {"sessionUpdate": "tool_call", "toolCallId": id, "title": "a step",
        "kind": "execute", "status": status}})
}

impl Row for AnyAcp {
    fn name(&self) -> &'static str {
        "acp"
    }

    fn program(&self) -> Option<&'static Path> {
        None
    }

    fn agent(&self, program: PathBuf, environment: BTreeMap<OsString, OsString>) -> Box<dyn Agent> {
        let argv = vec![program.into()];
        Box::new(Acp { argv, environment })
    }

    fn model(&self) -> &'static str {
        "big"
    }

    fn reports_dollars(&self) -> bool {
        true
    }

    fn account(&self, _: &World, _: Scenario) -> Vec<(OsString, OsString)> {
        Vec::new()
    }

    fn functions(&self) -> &'static str {
        ""
    }

    fn actor(&self) -> PathBuf {
        let this = std::env::current_exe().expect("ourselves");
        let target = this.ancestors().nth(2).expect("a target directory");
        let program = target.join("examples/acp-agent");
        let made = "`cargo build -p agents --examples` makes it";
        assert!(program.is_file(), "{made}");
        program
    }

    fn how(&self, scenario: Scenario) -> How {
        How::Acted(match scenario {
            Scenario::Edit => |_| {
                let said = json!({"say": "The greeting is changed."});
                acts(json!([writes("goodbye\n"), said, dollars(0.25), ends()]))
            },
            Scenario::Steps => |_| {
                acts(json!([
                    asks_to_run("1"), {"run": "echo 1 > one.txt"}, called("1", "completed"),
                    asks_to_run("2"), {"run": "cp one.txt two.txt; echo 2 >> two.txt"},
                    called("2", "completed"),
                    asks_to_run("3"), called("3", "failed"),
                    {"say": "done"}, ends(),
                ]))
            },
            Scenario::RefusedTool => {
                |_| acts(json!([asks_to_run("1"), writes("x"), {"say": "done"}, ends()]))
            }
            Scenario::DollarCap => |_| acts(json!([dollars(9.0), {"hang": true}])),
            Scenario::Overshoot => {
                |_| acts(json!([dollars(0.00375), dollars(0.0075), {"hang": true}]))
            }
            Scenario::TurnCap => |_| {
                let calls = ["1", "2", "3"].map(|it| called(it, "completed"));
                let mut steps = calls.to_vec();
                steps.extend([called("4", "pending"), json!({"hang": true})]);
                acts(steps.into())
            },
            Scenario::WallCap | Scenario::IdleCap | Scenario::Cancel => |_| {
                let run = format!("setsid sleep 300 >/dev/null 2>&1 & echo x > {UNDER_WAY}");
                acts(json!([{"run": run}, {"hang": true}]))
            },
            Scenario::OutputCap => |_| acts(json!([{"flood": "again and again and again"}])),
            Scenario::Flood => |_| acts(json!([{"flood": "0123456789".repeat(400)}])),
            Scenario::Resume => |_| {
                let mut script = acts(json!([{"say": "one"}, dollars(0.25), ends()]));
                // The protocol's cost is the session's.
                script["resumed"] = json!([[{"say": "two"}, dollars(0.5), ends()]]);
                script
            },
            Scenario::Crash => |_| {
                acts(
                    json!([called("1", "completed"), {"run": "echo 'it broke' >&2; kill -9 $PPID"}]),
                )
            },
            Scenario::Garbage => |_| {
                let update = json!({"jsonrpc": "2.0", "method": "session/update",
                    "params": {"sessionId": "new-session", "update": {
                        "sessionUpdate": "agent_message_chunk",
                        "content": {"type": "text", "text": "a?b"}}}});
                let mut broken = format!("{update}\n").into_bytes();
                let at = broken.windows(3).position(|it| it == b"a?b");
                broken[at.expect("its text") + 1] = 0xff;
                acts(json!([
                    {"bytes": [0xff, 0xfe, 0, 0x7b, 0x0a]}, {"line": "Warning: [x]"},
                    {"line": "{\"type\":7}"}, {"line": "[1,"}, {"bytes": broken}, ends(),
                ]))
            },
            Scenario::HalfALine => |_| {
                let half = b"{\"jsonrpc\":\"2.0\",\"id\"".as_slice();
                acts(json!([{"say": "x"}, {"bytes": half}, {"exit": 0}]))
            },
            Scenario::NoCredentials => |_| {
                let mut script = acts(json!([{"say": "never asked"}]));
                let error = json!({"code": -32000, "message": "Authentication required"});
                script["answers"]["session/new"] = json!({"error": error});
                script
            },
            Scenario::Overload => |_| {
                acts(
                    json!([{"error": {"code": -32603, "message": "Internal error",
                    "data": {"details": "529 overloaded_error"}}}]),
                )
            },
            Scenario::Quota => |at| {
                let said = format!("usage limit reached|{}", at.quota_until);
                acts(json!([{"error": {"code": -32603, "message": said}}]))
            },
            Scenario::IgnoresTerm => {
                |_| acts(json!([{"run": "trap '' TERM INT HUP; while :; do sleep 1; done"}]))
            }
            Scenario::ForksAway => |_| {
                let run = "(setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' \
                    >/dev/null 2>&1 &)";
                acts(json!([{"run": run}, {"say": "done"}, ends()]))
            },
            // It leaves with 0 once we are done with it.
            Scenario::ExitsZeroAfterFailing => |_| {
                let error = json!({"code": -32603, "message": "it gave up"});
                acts(json!([{"say": "all done"}, {"error": error}]))
            },
            Scenario::HangsOnRefusal => {
                return How::Not("it has no word for trying again; silence ends it");
            }
            Scenario::HostileRepository => {
                return How::Not("each agent has settings of its own: tests/real_acp");
            }
        })
    }
}
