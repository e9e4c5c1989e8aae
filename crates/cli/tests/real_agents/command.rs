//! A shell script as the agent, through the `command` back end.

use serde_json::json;

use super::world::{attempts, check_finished, dex, micro, ok, project, record};

/// Reads its prompt to the end, does what its stage asks, and says what it cost.
const AGENT: &str = r##"#!/bin/sh
set -eu
prompt=$(cat)
[ -n "$prompt" ]
[ -s "$DEX_SCHEMA" ]
echo "working on $DEX_STAGE"
echo 0.01 >"$DEX_COST"
case $DEX_STAGE in
specify) mkdir -p "$DEX_SPEC_DIR" && echo '# Say hello' >"$DEX_SPEC_DIR/spec.md" ;;
plan) echo '# Plan' >"$DEX_SPEC_DIR/plan.md" ;;
tasks) printf '## Phase 1: Greeting\n\n- [ ] T001 Change it\n' >"$DEX_SPEC_DIR/tasks.md" ;;
implement)
  case $prompt in *'T001 Change it'*) ;; *) exit 3 ;; esac
  echo goodbye >greeting.txt
  printf '## Phase 1: Greeting\n\n- [x] T001 Change it\n' >"$DEX_SPEC_DIR/tasks.md"
  echo 0.25 >"$DEX_COST"
  ;;
verify)
  printf '{"passed": true, "buildSucceeded": true, "testsSucceeded": true, "failures": [], "summary": "ok"}' \
    >"$DEX_ANSWER"
  ;;
learnings)
  [ "$DEX_TOOLS" = read_only ]
  printf '{"insights": [{"category": "testing", "insight": "check.sh decides", "context": "check.sh"}]}' \
    >"$DEX_ANSWER"
  ;;
*) echo "no such stage" >&2; exit 4 ;;
esac
"##;

#[test]
fn a_whole_run_with_a_shell_script_as_the_agent() {
    let repo = project(&json!({"verifyCommand": "sh check.sh"}));
    let script = repo.beside("agent.sh");
    std::fs::write(&script, AGENT).expect("writes");
    let argv = json!(["sh", script.display().to_string()]).to_string();
    ok(dex(&repo, &["config", "agentCommand", &argv]));
    ok(dex(
        &repo,
        &["run", "-m", "say hello", "--small", "--agent", "command"],
    ));
    check_finished(&repo);
    let record = record(&repo);
    let implement = attempts(&record, "implement");
    assert_eq!(implement.len(), 1);
    assert_eq!(micro(&implement[0]["costUsd"]), Some(250_000));
    assert_eq!(implement[0]["agent"], "command");
    assert_eq!(micro(&record["totalCostUsd"]), Some(5 * 10_000 + 250_000));
    assert!(repo.read(".dex/learnings.md").contains("check.sh decides"));
}
