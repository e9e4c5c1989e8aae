//! What back ends can be held to, and one stage on a private copy of some files.

mod support;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use agents::acp::Acp;
use agents::claude::Claude;
use agents::codex::{Codex, Inner};
use agents::command::Command;
use agents::private_copy::{self, Back, CopyError, Refused};
use agents::sandbox::{self, Abilities, Bwrap, Mode, Network, Policy, State};
use agents::{Agent, Ended, Event, Failure, Held, Mechanism, Outcome, Request, Stop, ToolSurface};
use support::Place;
use testkit::fake_model::{FakeModel, Turn};
use testkit::real_agent;

fn only(names: &[&str]) -> Vec<PathBuf> {
    names.iter().map(PathBuf::from).collect()
}

fn codex(inner: Inner) -> Codex {
    Codex {
        program: "codex".into(),
        environment: BTreeMap::new(),
        inner,
    }
}

#[test]
fn every_back_end_says_what_it_can_be_held_to() {
    let claude = Claude {
        program: "claude".into(),
        environment: BTreeMap::new(),
    };
    let shell = |script: &str| Command {
        argv: ["sh", "-c", script].iter().map(OsString::from).collect(),
    };
    let own = codex(Inner::Own);
    let acp = |name: &str| Acp::new(&[OsString::from(name)]);
    let (gemini, codex_acp, other) = (acp("gemini"), acp("codex-acp"), acp("my-agent"));
    let command = shell("true");
    let none = Mechanism::None;
    let agents: [(&str, &dyn Agent, Mechanism); 7] = [
        ("claude", &claude, none),
        ("codex", &own, none),
        ("codex under Landlock", &own, Mechanism::Landlock),
        ("command", &command, none),
        ("gemini", &gemini, none),
        ("codex-acp", &codex_acp, none),
        ("another acp", &other, none),
    ];
    let surfaces = [
        ToolSurface::ReadOnly,
        ToolSurface::ReadEdit {
            only: only(&["src/a.rs"]),
        },
        ToolSurface::Workspace,
    ];
    let mut table = String::new();
    for (name, agent, walls) in agents {
        for surface in &surfaces {
            let held = match agent.enforces(surface, walls) {
                Ok(Held::InPlace) => "in place".to_owned(),
                Ok(Held::OnACopy) => "on a copy".to_owned(),
                Err(refusal) => format!("refused: {refusal}"),
            };
            table.push_str(&format!("{name}, {}: {held}\n", surface.name()));
        }
    }
    insta::assert_snapshot!(table, @"
    claude, read_only: in place
    claude, read_edit: in place
    claude, workspace: in place
    codex, read_only: in place
    codex, read_edit: on a copy
    codex, workspace: in place
    codex under Landlock, read_only: refused: codex cannot be made to only look: its own sandbox cannot be used inside the one that is in force
    codex under Landlock, read_edit: refused: codex cannot be made to edit only the files named: its own sandbox cannot be used inside the one that is in force
    codex under Landlock, workspace: in place
    command, read_only: refused: command cannot be made to only look: a program is told what it may do, and nothing here keeps it to that
    command, read_edit: refused: command cannot be made to edit only the files named: a program is told what it may do, and nothing here keeps it to that
    command, workspace: in place
    gemini, read_only: in place
    gemini, read_edit: in place
    gemini, workspace: in place
    codex-acp, read_only: in place
    codex-acp, read_edit: refused: acp cannot be made to edit only the files named: it does not ask before it edits a file
    codex-acp, workspace: in place
    another acp, read_only: refused: acp cannot be made to only look: an agent we do not know may act without asking
    another acp, read_edit: refused: acp cannot be made to edit only the files named: an agent we do not know may act without asking
    another acp, workspace: in place
    ");
    // Two of them nest, but not for root.
    let in_bwrap = own.enforces(&ToolSurface::ReadOnly, Mechanism::Bwrap);
    assert_eq!(in_bwrap.is_ok(), !rustix::process::geteuid().is_root());
    let odd = ToolSurface::ReadEdit {
        only: only(&["a,b.rs"]),
    };
    assert!(claude.enforces(&odd, none).is_err(), "a comma ends a rule");
}

#[test]
fn a_surface_that_cannot_be_held_is_refused_before_anything_starts() {
    let place = Place::new();
    let mut request = place.request("resolve", 1);
    for tools in [
        ToolSurface::ReadEdit {
            only: only(&["a.txt"]),
        },
        ToolSurface::ReadOnly,
    ] {
        request.tools = tools;
        let outcome = codex(Inner::Off).run(&request, &mut |_| {}, &Stop::new());
        let Ended::Failed { failure, detail } = outcome.ended else {
            panic!("it must not be used")
        };
        assert_eq!(failure, Failure::Unavailable);
        assert!(detail.contains("codex cannot be made to"), "{detail}");
    }
}

/// A program that runs a script where it is started.
fn on_a_copy(place: &Place, names: &[&str], script: &str) -> Result<(Outcome, Back), CopyError> {
    let agent = Command {
        argv: ["sh", "-c", script].iter().map(OsString::from).collect(),
    };
    let request = place.request("resolve", 1);
    private_copy::run(&agent, &request, &only(names), (&mut |_| {}, &Stop::new()))
}

fn refused(back: &Back) -> Vec<(&Path, Refused)> {
    let refused = back.refused.iter();
    refused.map(|(path, why)| (path.as_path(), *why)).collect()
}

#[test]
fn what_was_named_comes_back_and_nothing_else() {
    let place = Place::new();
    place.write("src/a.txt", "old\n");
    place.write("src/b.txt", "kept\n");
    place.write("unseen.txt", "secret\n");
    let mode = std::fs::Permissions::from_mode(0o750);
    std::fs::set_permissions(place.file("src/a.txt"), mode).unwrap();
    let script = "ls -A > seen.txt; echo new > src/a.txt; echo x > src/extra.txt; mkdir d";
    let (outcome, back) = on_a_copy(&place, &["src/a.txt", "src/b.txt"], script).unwrap();
    assert_eq!(outcome.ended, Ended::Finished);
    assert_eq!(back.taken, only(&["src/a.txt"]));
    let named = |it| (Path::new(it), Refused::NotNamed);
    assert_eq!(
        refused(&back),
        [named("d"), named("seen.txt"), named("src/extra.txt")]
    );
    assert_eq!(place.read("src/a.txt"), "new\n");
    assert_eq!(place.read("src/b.txt"), "kept\n");
    assert!(!place.file("src/extra.txt").exists() && !place.file("seen.txt").exists());
    let mode = place.file("src/a.txt").metadata().unwrap().permissions();
    assert_eq!(mode.mode() & 0o777, 0o750);
    let left: Vec<_> = std::fs::read_dir(place.file("src")).unwrap().collect();
    assert_eq!(left.len(), 2, "no temporary file stays: {left:?}");
    let seen = std::fs::read_to_string(place.scratch().join("copy/seen.txt")).unwrap();
    assert!(!seen.contains("unseen"), "{seen}");
}

#[test]
fn i03_a_file_that_became_something_else_is_left_alone() {
    for (script, why) in [
        ("rm a.txt", Refused::Removed),
        ("rm a.txt; ln -s /etc/hostname a.txt", Refused::NotAFile),
        ("rm a.txt; mkfifo a.txt", Refused::NotAFile),
        ("rm a.txt; mkdir a.txt", Refused::NotAFile),
        ("head -c 20000000 /dev/zero > a.txt", Refused::TooLarge),
    ] {
        let place = Place::new();
        place.write("a.txt", "old\n");
        let (_, back) = on_a_copy(&place, &["a.txt"], script).unwrap();
        assert_eq!(back.taken, only(&[]), "{script}");
        assert_eq!(refused(&back), [(Path::new("a.txt"), why)], "{script}");
        assert_eq!(place.read("a.txt"), "old\n", "{script}");
    }
}

#[test]
fn what_somebody_else_changed_meanwhile_is_not_written_over() {
    let place = Place::new();
    place.write("a.txt", "old\n");
    place.write("d/b.txt", "old\n");
    let tree = place.work().display().to_string();
    let script = format!(
        "echo new > a.txt; echo new > d/b.txt; echo theirs > {tree}/a.txt; \
         mv {tree}/d {tree}/e; ln -s e {tree}/d"
    );
    let (_, back) = on_a_copy(&place, &["a.txt", "d/b.txt"], &script).unwrap();
    assert_eq!(back.taken, only(&[]));
    assert_eq!(back.refused.len(), 2);
    assert!(
        back.refused
            .iter()
            .all(|it| it.1 == Refused::ChangedMeanwhile)
    );
    assert_eq!(place.read("a.txt"), "theirs\n");
    assert_eq!(place.read("e/b.txt"), "old\n", "not through a link");
}

#[test]
fn nothing_comes_back_from_an_attempt_that_failed() {
    let place = Place::new();
    place.write("a.txt", "old\n");
    let (outcome, back) = on_a_copy(&place, &["a.txt"], "echo new > a.txt; exit 3").unwrap();
    assert_ne!(outcome.ended, Ended::Finished);
    assert_eq!(back, Back::default());
    assert_eq!(place.read("a.txt"), "old\n");
}

#[test]
fn a_name_that_leads_elsewhere_is_not_copied() {
    let place = Place::new();
    place.write("a.txt", "old\n");
    std::fs::write(place.scratch().join("outside.txt"), "x").unwrap();
    symlink("/etc", place.file("link")).unwrap();
    for name in [
        "../scratch/outside.txt",
        "/etc/hostname",
        "link/hostname",
        "link",
        "no.txt",
        "",
    ] {
        let error = on_a_copy(&place, &[name], "true").unwrap_err();
        assert!(matches!(error, CopyError::Name(..)), "{name}: {error:?}");
        std::fs::remove_dir_all(place.scratch().join("copy")).unwrap();
    }
}

const PATCH: &str =
    "*** Begin Patch\n*** Update File: a.txt\n@@\n-hello\n+goodbye\n*** End Patch\n";

/// The real Codex, with a model that says these turns, in directories of its own.
struct RealCodex {
    root: tempfile::TempDir,
    _model: FakeModel,
    agent: Codex,
}

impl RealCodex {
    fn new(turns: impl FnOnce(&dyn Fn(&str) -> PathBuf) -> Vec<Turn>) -> Option<RealCodex> {
        let program = real_agent::codex()?;
        // Not in memory below `/dev`, which Codex's sandbox hides.
        let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        for name in ["work", "home/.codex", "scratch"] {
            std::fs::create_dir_all(root.path().join(name)).expect("makes");
        }
        let at = |name: &str| root.path().join(name);
        std::fs::write(at("work/a.txt"), "hello\n").expect("writes");
        std::fs::write(at("work/b.txt"), "hello\n").expect("writes");
        let model = FakeModel::start(turns(&at));
        let settings = format!(
            "model_provider = \"fake\"\n[model_providers.fake]\nname = \"fake\"\n\
             base_url = \"{}/v1\"\nwire_api = \"responses\"\nenv_key = \"FAKE_KEY\"\n",
            model.url()
        );
        std::fs::write(at("home/.codex/config.toml"), settings).expect("writes");
        let environment = BTreeMap::from([
            ("HOME".into(), at("home").into()),
            ("FAKE_KEY".into(), "dummy".into()),
        ]);
        let agent = Codex {
            program: program.to_owned(),
            environment,
            inner: Inner::Own,
        };
        Some(RealCodex {
            root,
            _model: model,
            agent,
        })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.at(name)).expect("reads")
    }

    fn request(&self, tools: ToolSurface) -> Request {
        let mut request = Place::new().request("resolve", 1);
        request.dir = self.at("work");
        request.scratch = self.at("scratch");
        request.model = Some("gpt-5.5".into());
        request.tools = tools;
        request
    }
}

#[test]
fn the_real_codex_edits_one_file_on_a_copy_and_reaches_nothing_else() {
    let codex = RealCodex::new(|at| {
        let other = at("work/b.txt").display().to_string();
        vec![
            Turn::patch(PATCH),
            Turn::command(format!("echo y > extra.txt; echo x > {other}")),
            Turn::text("done"),
        ]
    });
    let Some(codex) = codex else { return };
    let names = only(&["a.txt"]);
    let request = codex.request(ToolSurface::ReadEdit {
        only: names.clone(),
    });
    let held = codex.agent.enforces(&request.tools, Mechanism::None);
    assert_eq!(held, Ok(Held::OnACopy));
    let mut events: Vec<Event> = Vec::new();
    let ran = private_copy::run(
        &codex.agent,
        &request,
        &names,
        (&mut |event| events.push(event), &Stop::new()),
    );
    let (outcome, back) = ran.unwrap();
    assert_eq!(outcome.ended, Ended::Finished, "{events:#?}");
    assert_eq!(back.taken, names, "{events:#?}");
    assert_eq!(
        refused(&back),
        [(Path::new("extra.txt"), Refused::NotNamed)]
    );
    assert_eq!(codex.read("work/a.txt"), "goodbye\n");
    assert_eq!(codex.read("work/b.txt"), "hello\n");
    assert!(!codex.at("work/extra.txt").exists());
}

#[test]
fn h07_under_landlock_alone_the_real_codex_only_looks_because_the_walls_hold_it() {
    let codex = RealCodex::new(|_| {
        vec![
            Turn::command("cat b.txt; touch made.txt; echo x > a.txt"),
            Turn::patch(PATCH),
            Turn::text("looked"),
        ]
    });
    let Some(codex) = codex else { return };
    let mut request = codex.request(ToolSurface::ReadOnly);
    let policy = Policy {
        writable: vec![],
        state: State {
            dirs: vec![codex.at("home/.codex")],
            ..State::default()
        },
        read_only: vec![codex.at("work")],
        hidden: vec![],
        services: vec![],
        layered: vec![],
        layers: None,
        scratch: codex.at("scratch"),
        network: Network::On,
    };
    let alone = Abilities {
        bwrap: Bwrap::Absent,
        landlock: sandbox::machine().landlock,
    };
    request.sandbox = sandbox::prepare(Mode::Auto, &policy, &alone).unwrap();
    let walls = request.sandbox.mechanism();
    assert_eq!(walls, Mechanism::Landlock);
    assert!(codex.agent.enforces(&request.tools, walls).is_err());
    let mut events: Vec<Event> = Vec::new();
    let agent = &codex.agent;
    let outcome = agent.run(&request, &mut |event| events.push(event), &Stop::new());
    assert_eq!(outcome.ended, Ended::Finished, "{events:#?}");
    assert_eq!(outcome.text, "looked");
    // It could read, so its commands did run.
    let read =
        |it: &Event| matches!(it, Event::ToolResult { summary, .. } if summary.contains("hello"));
    assert!(events.iter().any(read), "{events:#?}");
    assert_eq!(codex.read("work/a.txt"), "hello\n");
    assert!(!codex.at("work/made.txt").exists());
}
