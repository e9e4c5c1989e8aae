//! report, runs, timeline and show say what is known, and no more.

use serde_json::json;

use crate::hand::{BRANCH, Hand, by_command, by_word, dex_in, masked};

#[test]
fn the_morning_after_says_how_each_feature_was_verified() {
    let mut run = Hand::complete();
    run.repo.git(&["reset", "-q", "--hard", "HEAD~1"]);
    run.stage(
        "completion",
        0,
        &json!({ "agent": null, "costUsd": null, "leftOut": [
        { "path": "big.bin", "reason": "too_large", "bytes": 30000000 } ], "assumptions": [
        { "question": "Which port?", "answer": "8080", "by": "assumed" } ] }),
    );
    insta::assert_snapshot!(masked(&run.ok(&["report"])), @r"
    dex/2026-01-02-aabbcc completed
      goal GOAL.md

    ✓ Greeting
        verified by command: make test
        1 file +2 -0 · $1.00 · 15.0 s · 1 cycle
    ✓ Farewell
        by the agent's word, not verified by a command
        1 file +2 -0 · $1.00 · 15.0 s · 1 cycle

    2 of 2 features done · 1 of 2 done verified by command
    3 files +5 -0 · 2 cycles · 12 stages · 9 attempts
    cost $2.25 · agent time 39.0 s

    Questions
      Which port? → 8080 (assumed)

    Left out of commits
      big.bin (too_large, 30000000 bytes, completion:0)

    Next
      git switch main && git merge --no-ff dex/2026-01-02-aabbcc
          take all of it into main
      git diff <id> <id> -- . ':!.dex'
          everything it changed
      dex log dex/2026-01-02-aabbcc
          what the agent did, step by step
    ");
}

#[test]
fn a_report_in_markdown_escapes_what_others_wrote() {
    let mut run = Hand::new(&["[click](http://x) | *now*"]);
    run.stage("manifest_extraction", 0, &json!({}));
    run.failed("plan", 1, &json!({ "reason": "time_out", "retried": true }));
    run.cycle(1, &by_word(true));
    insta::assert_snapshot!(masked(&run.ok(&["report", "--md"])), @r"
    # Run `dex/2026-01-02-aabbcc`

    - Status: paused, every feature is done
    - Goal: `GOAL.md`
    - Features: 1 of 1 done, 0 verified by command
    - Verify command: none; not verified by a command
    - Changes: 2 files +3 -0
    - Cost: $1.50; agent time: 21.0 s; 1 cycle, 6 stages

    ## Features

    | | feature | verified | changes | cost | time | cycles |
    |---|---|---|---|---|---|---|
    | done | \[click\](http://x) \| \*now\* | by the agent's word, not verified by a command | 1 file +2 -0 | $1.25 | 18.0 s | 1 |

    ## Attempts that failed

    - `plan:1` failed: time\_out, tried again

    ## Next

    - `dex resume dex/2026-01-02-aabbcc`: go on where it stopped
    - `git diff <id> <id> -- . ':!.dex'`: everything it changed
    - `dex log dex/2026-01-02-aabbcc`: what the agent did, step by step
    ");
}

#[test]
fn a_fresh_clone_prints_the_same_bytes() {
    let run = Hand::complete();
    let here = run.ok(&["report", "--json"]);
    // What only this machine knows does not matter: files edited, another branch checked out.
    run.repo.write(".dex/state.json", "{}");
    assert_eq!(run.ok(&["report", "--json"]), here);
    run.repo.git(&["checkout", "-q", "--", "."]);
    run.repo.git(&["switch", "-q", "main"]);
    assert_eq!(run.ok(&["report", "--json", BRANCH]), here);
    let clone = run.repo.beside("clone");
    run.repo.git(&["clone", "-q", ".", clone.to_str().unwrap()]);
    let there = dex_in(&run.repo, &clone, &["report", "--json"]);
    assert_eq!(there.out, here);
    assert!(
        !here.contains(run.repo.path().to_str().unwrap()),
        "a path of this machine"
    );
}

#[test]
fn k04_a_feature_is_never_said_to_be_more_than_it_is() {
    let mut run = Hand::new(&["Fails", "Word", "Waits"]);
    run.verify_command = Some("make test");
    run.stage("manifest_extraction", 0, &json!({}));
    run.cycle(1, &by_command(false));
    run.cycle(2, &by_word(true));
    let report = run.dex(&["report", "--json"]).json();
    let said: Vec<String> = report["features"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| {
            format!(
                "{} {} by {} passed {}",
                it["title"], it["outcome"], it["verified"]["by"], it["verified"]["passed"]
            )
        })
        .collect();
    insta::assert_snapshot!(said.join("\n"), @r#"
    "Fails" "active" by "command" passed false
    "Word" "done" by "word" passed true
    "Waits" "pending" by null passed null
    "#);
    assert_eq!(report["totals"]["verifiedByCommand"], 0);
    let text = run.ok(&["report"]);
    assert!(
        text.contains("not verified: make test failed (exit 1)"),
        "{text}"
    );
    assert!(
        text.contains("by the agent's word, not verified by a command"),
        "{text}"
    );
}

#[test]
fn k04_a_reverted_verify_verifies_nothing() {
    let mut run = Hand::new(&["One"]);
    run.stage("manifest_extraction", 0, &json!({}));
    run.stage("gap_analysis", 1, &json!({}));
    run.stage("implement", 1, &json!({}));
    run.stage("verify", 1, &json!({ "verify": by_command(true) }));
    let verify = run.repo.git(&["rev-parse", "HEAD"]);
    let message = format!("Revert it\n\nThis reverts commit {verify}.");
    run.repo
        .git(&["commit", "-q", "--allow-empty", "-m", &message]);
    let report = run.dex(&["report", "--json"]).json();
    assert_eq!(report["features"][0]["verified"]["passed"], json!(null));
    let text = masked(&run.ok(&["timeline"]));
    assert!(text.contains("reverted, does not count"), "{text}");
    assert!(text.contains("by hand: Revert it"), "{text}");
}

#[test]
fn dollars_nobody_reported_are_not_zero() {
    let mut run = Hand::new(&["One"]);
    run.stage("manifest_extraction", 0, &json!({ "costUsd": null }));
    let report = run.dex(&["report", "--json"]).json();
    assert_eq!(report["totals"]["costUsd"], json!(null));
    assert!(run.ok(&["report"]).contains("cost not reported"));
    assert!(run.ok(&["runs"]).contains("not reported"));
    assert_eq!(
        run.dex(&["runs", "--json"]).json()["runs"][0]["costUsd"],
        json!(null)
    );
}

#[test]
fn runs_are_listed_also_those_of_a_remote() {
    let run = Hand::complete();
    insta::assert_snapshot!(run.ok(&["runs"]), @r"
    branch                 status       features cycles          cost  started
    dex/2026-01-02-aabbcc  completed         2/2      2         $2.25  2026-01-02 03:00 UTC
    ");
    let clone = run.repo.beside("clone");
    run.repo
        .git(&["clone", "-q", "-b", "main", ".", clone.to_str().unwrap()]);
    let there = dex_in(&run.repo, &clone, &["runs"]);
    assert!(there.out.contains("only on a remote"), "{}", there.out);
    let json = dex_in(&run.repo, &clone, &["runs", "--json"]).json();
    assert_eq!(json["runs"][0]["remoteOnly"], true);
}

#[test]
fn a_timeline_is_a_line_for_each_stage_with_cost_time_and_proof() {
    let mut run = Hand::new(&["Greeting"]);
    run.stage("manifest_extraction", 0, &json!({}));
    run.stage(
        "gap_analysis",
        1,
        &json!({ "agent": null, "costUsd": null }),
    );
    run.repo
        .git(&["commit", "-q", "--allow-empty", "-m", "a note of mine"]);
    run.failed(
        "implement",
        1,
        &json!({ "reason": "time_out", "retried": true }),
    );
    run.stage("implement", 1, &json!({}));
    run.stage("verify", 1, &json!({ "verify": by_command(false) }));
    run.stage("implement_fix", 1, &json!({}));
    run.stage("verify", 1, &json!({ "verify": by_command(true) }));
    insta::assert_snapshot!(masked(&run.ok(&["timeline"])), @r"
    dex/2026-01-02-aabbcc paused
    Once per run
      <id>  Features                    $0.25         3.0 s
    Cycle 1 · f1
      <id>  Gap analysis             no agent         3.0 s
      <id>  by hand: a note of mine
      <id>  Implement                   $0.50         6.0 s  1 failed attempt
      <id>  Verify                      $0.25         3.0 s  ✗ failed by command
      <id>  Fix                         $0.25         3.0 s
      <id>  Verify                      $0.25         3.0 s  ✓ by command
    ");
    let json = run.dex(&["timeline", "--json"]).json();
    let implement = &json["runs"][0]["entries"][3];
    assert_eq!(
        implement["costUsd"], 0.5,
        "the failed attempt's cost belongs to the stage"
    );
    assert_eq!(implement["failedAttempts"], 1);
}

#[test]
fn a_stage_is_shown_with_everything_the_record_knows() {
    let mut run = Hand::new(&["Greeting"]);
    run.stage("manifest_extraction", 0, &json!({}));
    run.stage("gap_analysis", 1, &json!({}));
    run.repo.write("src/a.txt", "one\ntwo\n");
    run.repo.write("README.md", "changed\n");
    run.stage("implement", 1, &json!({
        "model": "m-1", "agentCommits": ["wip"], "noticed": ["hooks were put back"],
        "steps": [{ "seq": 1, "atMs": 5, "kind": "tool_call", "text": "src/a.txt", "tool": "Write" }],
    }));
    insta::assert_snapshot!(masked(&run.ok(&["show", "implement:1"])), @r"
    Cycle 1 — Implement
      checkpoint   implement:1 of dex/2026-01-02-aabbcc
      feature      Greeting (f1)
      commit       <id>
      parent       <id>
      author       Ada Example <ada@example.com>
      time         2026-01-02 03:04 UTC
        dex: implement completed [cycle:1] [feature:f1]
        [checkpoint:implement:1]
      agent        scripted, model m-1
      cost         $0.25
      tokens       in 100, out 20, cached 0
      worked       3.0 s
    Commits of the agent, folded in
        wip
    Noticed
        hooks were put back
    2 files changed
           +1     -1 README.md
           +2     -0 src/a.txt
    and 2 files under .dex/
    Steps
        Write: src/a.txt
    ");
    assert_eq!(
        run.ok(&["show"]),
        run.ok(&["show", "implement:1"]),
        "the newest by default"
    );
    assert_eq!(
        run.ok(&["show", "aabbcc@implement:1"]),
        run.ok(&["show", "HEAD"])
    );
}

#[test]
fn any_other_commit_shows_what_git_knows() {
    let run = Hand::complete();
    insta::assert_snapshot!(masked(&run.ok(&["show", "main"])), @r"
    not a stage
      commit       <id>
      parent       none
      author       Ada Example <ada@example.com>
      time         2026-01-02 03:04 UTC
        initial
    1 file changed
           +1     -0 README.md
    ");
    let missing = run.dex(&["show", "plan:7"]);
    assert_eq!(missing.code, 3);
    insta::assert_snapshot!(missing.err, @r"
    error: there is no finished stage or commit plan:7
    hint: `dex timeline` lists the stages: name one as plan:2, verify:2#1 or RUN@plan:2.
    ");
}

/// Every name an object has, also further down.
fn names(value: &serde_json::Value, into: &mut std::collections::BTreeSet<String>) {
    match value {
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                into.insert(name.clone());
                names(value, into);
            }
        }
        serde_json::Value::Array(items) => items.iter().for_each(|it| names(it, into)),
        _ => {}
    }
}

#[test]
fn every_field_of_the_json_is_documented() {
    let mut run = Hand::new(&["One"]);
    run.stage(
        "manifest_extraction",
        0,
        &json!({ "leftOut": [{ "path": "a", "reason": "r" }],
        "noticed": ["n"], "assumptions": [{ "question": "q", "answer": "a", "by": "assumed" }] }),
    );
    run.failed("plan", 1, &json!({ "reason": "time_out" }));
    run.cycle(1, &by_command(true));
    run.repo.write(".dex/state.json", "{}");
    let pages = ["json-output", "run-record", "live", "transcript"];
    let docs: String = pages
        .map(|page| {
            let path = format!(
                "{}/../../docs/formats/{page}.md",
                env!("CARGO_MANIFEST_DIR")
            );
            std::fs::read_to_string(path).unwrap()
        })
        .concat();
    let words: std::collections::BTreeSet<&str> = docs
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .collect();
    for args in [
        &["status"][..],
        &["report"],
        &["runs"],
        &["timeline", "--all"],
        &["show"],
        &["undo", "--list"],
        &["config"],
        &["config", "agent"],
        &["prompts"],
        &["prompts", "plan"],
        &["doctor"],
    ] {
        let json = run.dex(&[args, &["--json"]].concat()).json();
        let mut used = std::collections::BTreeSet::new();
        names(&json, &mut used);
        for check in json["checks"].as_array().into_iter().flatten() {
            used.insert(check["code"].as_str().unwrap().to_owned());
        }
        let unknown: Vec<&String> = used
            .iter()
            .filter(|it| !words.contains(it.as_str()))
            .collect();
        assert!(
            unknown.is_empty(),
            "dex {args:?} --json: {unknown:?} is not documented"
        );
    }
}
