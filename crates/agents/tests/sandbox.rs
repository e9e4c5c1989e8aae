//! Programs inside walls, with each mechanism this machine has.
//!
//! Every test runs once with `bwrap` and once with Landlock alone, where it is about both.

mod support;

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use agents::Stop;
use agents::process::{End, Finished, Go, Line, Spec, run};
use agents::sandbox::{
    self, Abilities, Bwrap, Gap, Mode, Network, Policy, Sandbox, Setting, State,
};
use support::{Place, eventually, lives, pid_in};

fn machine() -> &'static Abilities {
    static MACHINE: OnceLock<Abilities> = OnceLock::new();
    MACHINE.get_or_init(sandbox::abilities)
}

/// None where `bwrap` is not installed and `./check --quick` leaves out what needs it.
fn bwrap() -> Option<Abilities> {
    if !testkit::left_out::with_bwrap() {
        return None;
    }
    assert!(
        matches!(machine().bwrap, Bwrap::Works { .. }),
        "these tests need a bwrap that works: {:?}",
        machine().bwrap
    );
    Some(Abilities {
        landlock: None,
        ..machine().clone()
    })
}

fn landlock() -> Abilities {
    assert!(machine().landlock.is_some(), "these tests need Landlock");
    Abilities {
        bwrap: Bwrap::Absent,
        ..machine().clone()
    }
}

fn both() -> Vec<Abilities> {
    bwrap().into_iter().chain([landlock()]).collect()
}

/// A work tree with a repository, and a home with credentials beside it.
struct World {
    place: Place,
    home: PathBuf,
}

impl World {
    fn new() -> World {
        // Not in a temporary directory, which a confined program has one of its own of.
        let place = Place::under(std::path::Path::new(env!("CARGO_TARGET_TMPDIR")));
        let home = place.work().with_file_name("home");
        for (name, content) in [
            (".ssh/id_ed25519", "the key"),
            (".netrc", "the password"),
            (".config/gh/hosts.yml", "the token"),
            (".config/other", "a setting"),
        ] {
            let path = home.join(name);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
            std::fs::write(path, content).expect("writes");
        }
        place.write(".git/config", "[core]\n");
        place.write(".git/hooks/pre-commit", "#!/bin/sh\n");
        place.write("file", "old\n");
        World { place, home }
    }

    fn policy(&self) -> Policy {
        let credentials = sandbox::credentials(Some(&self.home), |_| None);
        Policy {
            writable: vec![self.place.work()],
            state: State::default(),
            read_only: vec![self.place.file(".git")],
            hidden: credentials,
            services: vec![],
            layered: vec![],
            layers: None,
            scratch: self.place.scratch(),
            network: Network::On,
        }
    }

    fn spec(&self, sandbox: &Sandbox, script: &str) -> Spec {
        let mut spec = self.place.shell(script);
        spec.env.insert("HOME".into(), self.home.clone().into());
        spec.sandbox = sandbox.clone();
        spec
    }

    fn sandbox(&self, abilities: &Abilities) -> Sandbox {
        sandbox::prepare(Mode::Auto, &self.policy(), abilities).expect("a sandbox")
    }

    /// What a script says, both streams, and how it ended.
    fn says(&self, abilities: &Abilities, script: &str) -> String {
        said(&self.spec(&self.sandbox(abilities), script)).1
    }
}

fn said(spec: &Spec) -> (Finished, String) {
    let mut lines = Vec::new();
    let finished = run(spec, &Stop::new(), &mut |line| {
        if let Some(Line::Out(text) | Line::Err(text)) = line {
            lines.push(text);
        }
        Go::On
    })
    .expect("it starts");
    (finished, lines.join("\n"))
}

#[test]
fn a_program_works_in_its_work_tree_and_nowhere_else() {
    for abilities in both() {
        let world = World::new();
        let outside = world.home.join("made");
        let script = format!(
            "echo new > file && mkdir -p a/b && echo x > a/b/c && mv a/b/c a/d && rm file.gone 2> /dev/null
            echo tmp > $TMPDIR/t && cat $TMPDIR/t
            (echo y > {outside}) 2> /dev/null || echo kept out
            (echo y > {home}/.config/other) 2> /dev/null || echo kept out
            rm -rf {home}/.config 2> /dev/null; mv {home} {home}2 2> /dev/null
            cat {home}/.config/other",
            outside = outside.display(),
            home = world.home.display()
        );
        let said = world.says(&abilities, &script);
        assert_eq!(said, "tmp\nkept out\nkept out\na setting", "{abilities:?}");
        assert_eq!(world.place.read("file"), "new\n");
        assert_eq!(world.place.read("a/d"), "x\n");
        assert!(!outside.exists());
        assert!(world.home.join(".config/gh/hosts.yml").exists());
    }
}

#[test]
fn h07_a_program_that_may_only_look_changes_nothing_and_can_still_answer() {
    for abilities in both() {
        let world = World::new();
        // As in a run in place: what it may write lies inside what it may not.
        let scratch = world.place.file(".git/ours");
        std::fs::create_dir(&scratch).expect("makes");
        let mut policy = world.policy();
        policy.read_only.append(&mut policy.writable);
        policy.scratch = scratch.clone();
        let walls = sandbox::prepare(Mode::Required, &policy, &abilities).expect("whole");
        assert!(walls.keeps(&world.place.work()), "{abilities:?}");
        let shared = sandbox::shared(&scratch);
        let script = format!(
            "for try in 'echo new > file' 'rm file' 'mv file other' 'touch made' 'mkdir made' \
                'chmod 777 file' 'ln -s /etc made' 'echo x > .git/config' 'touch .git/ours/x' \
                'unshare -rm mount -o remount,rw,bind .'
            do (eval \"$try\") > /dev/null 2>&1 && echo \"did: $try\"; done
            echo tmp > $TMPDIR/t && echo 1 > {}/answer.json && cat file",
            shared.display()
        );
        let said = said(&world.spec(&walls, &script)).1;
        let said: Vec<&str> = said.lines().filter(|it| !it.contains("chmod")).collect();
        assert_eq!(said, ["old"], "{abilities:?}");
        assert_eq!(world.place.read("file"), "old\n");
        assert!(shared.join("answer.json").exists());
    }
}

#[test]
fn c24_git_can_be_looked_at_and_not_changed_moved_or_replaced() {
    let Some(bwrap) = bwrap() else { return };
    let world = World::new();
    let script = "cat .git/config
        for try in 'echo evil >> .git/config' 'rm -rf .git' 'mv .git .git2' 'ln -sfn /etc .git' \
            'echo x > .git/hooks/pre-commit' 'touch .git/index.lock' 'chmod 777 .git' \
            'mkdir .git/new' 'unshare -rm umount -l .git' 'unshare -rm mount -o remount,rw,bind .git'
        do (eval \"$try\") > /dev/null 2>&1 && echo \"did: $try\"; done
        unshare -rm sh -c 'umount .git; mount -o remount,rw,bind .git; echo evil >> .git/config' 2> /dev/null
        cat .git/config";
    assert_eq!(world.says(&bwrap, script), "[core]\n[core]");
    assert_eq!(world.place.read(".git/config"), "[core]\n");
    assert_eq!(world.place.read(".git/hooks/pre-commit"), "#!/bin/sh\n");
}

#[test]
fn c24_in_a_linked_work_tree_neither_its_git_file_nor_where_it_points_can_be_changed() {
    let Some(bwrap) = bwrap() else { return };
    let world = World::new();
    let main = world.home.join("main/.git");
    std::fs::create_dir_all(main.join("worktrees/w")).expect("makes");
    std::fs::remove_dir_all(world.place.file(".git")).expect("removes");
    let link = format!("gitdir: {}/worktrees/w\n", main.display());
    world.place.write(".git", &link);
    let policy = Policy {
        read_only: vec![world.place.file(".git"), main.clone()],
        ..world.policy()
    };
    let sandbox = sandbox::prepare(Mode::Required, &policy, &bwrap).expect("a sandbox");
    let script = format!(
        "(echo gitdir: evil > .git) 2> /dev/null || echo kept
        (rm -f .git; mv .git x; echo gitdir: evil > new && mv new .git) 2> /dev/null || echo kept
        (touch {main}/worktrees/w/index.lock) 2> /dev/null || echo kept",
        main = main.display()
    );
    assert_eq!(said(&world.spec(&sandbox, &script)).1, "kept\nkept\nkept");
    assert_eq!(world.place.read(".git"), link);
}

#[test]
fn i03_credentials_are_not_there_and_other_settings_are() {
    for abilities in both() {
        let world = World::new();
        let script = "cat ~/.config/other; echo
            cat ~/.ssh/id_ed25519 ~/.netrc ~/.config/gh/hosts.yml 2> /dev/null || echo nothing
            cat ~/.ssh/* ~/.config/gh/* 2> /dev/null";
        assert_eq!(world.says(&abilities, script), "a setting\nnothing");
    }
}

#[test]
fn a_credential_behind_a_link_is_hidden_where_it_really_is() {
    for abilities in both() {
        let world = World::new();
        let real = world.home.join("vault/ssh");
        std::fs::create_dir_all(world.home.join("vault")).expect("makes");
        std::fs::rename(world.home.join(".ssh"), &real).expect("moves");
        std::os::unix::fs::symlink("vault/ssh", world.home.join(".ssh")).expect("links");
        let script = "cat ~/.ssh/id_ed25519 ~/vault/ssh/id_ed25519 2> /dev/null; echo end";
        assert_eq!(world.says(&abilities, script), "end");
    }
}

#[test]
fn other_processes_are_not_seen_signalled_or_read() {
    for abilities in both() {
        let world = World::new();
        let mut other = std::process::Command::new("sleep")
            .arg("60")
            .env("SECRET", "canary-value")
            .spawn()
            .expect("starts");
        let pid = other.id();
        let script = format!(
            "kill -9 {pid} 2> /dev/null; cat /proc/{pid}/environ 2> /dev/null | grep -a canary; echo end"
        );
        assert_eq!(world.says(&abilities, &script), "end");
        assert!(lives(pid));
        other.kill().expect("kills");
        other.wait().expect("waits");
    }
}

#[test]
fn nothing_gains_rights_it_did_not_have() {
    for abilities in both() {
        let said = World::new().says(&abilities, "grep NoNewPrivs /proc/self/status");
        assert_eq!(said, "NoNewPrivs:\t1");
    }
}

#[test]
fn without_a_network_nobody_else_is_reached_and_oneself_is() {
    let Some(bwrap) = bwrap() else { return };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("listens");
    let port = listener.local_addr().expect("an address").port();
    let connect =
        format!("(exec 3<>/dev/tcp/127.0.0.1/{port}) 2> /dev/null && echo reached || echo not");
    for abilities in both() {
        let world = World::new();
        let says = |network| {
            let policy = Policy {
                network,
                ..world.policy()
            };
            let sandbox = sandbox::prepare(Mode::Auto, &policy, &abilities).expect("a sandbox");
            let mut spec = world.spec(&sandbox, "");
            spec.argv = ["bash", "-c", &connect].map(Into::into).to_vec();
            (said(&spec).1, sandbox.gaps().to_vec())
        };
        assert_eq!(says(Network::On).0, "reached");
        let (reached, gaps) = says(Network::Off);
        assert_eq!(reached, "not");
        let told = gaps.contains(&Gap::NetworkButTcp);
        assert_eq!(told, abilities.bwrap == Bwrap::Absent, "{gaps:?}");
    }
    let world = World::new();
    let policy = Policy {
        network: Network::Off,
        ..world.policy()
    };
    let sandbox = sandbox::prepare(Mode::Auto, &policy, &bwrap).expect("a sandbox");
    assert_eq!(
        said(&world.spec(&sandbox, "cat /proc/net/dev | grep -c lo:")).1,
        "1"
    );
}

#[test]
fn an_agent_keeps_its_log_in_and_cannot_change_the_settings_that_start_programs() {
    let Some(bwrap) = bwrap() else { return };
    let world = World::new();
    let dir = world.home.join(".agent");
    std::fs::create_dir(&dir).expect("makes");
    std::fs::write(dir.join("login"), "token").expect("writes");
    std::fs::write(dir.join("hooks.json"), "{\"mine\": 1}").expect("writes");
    let policy = Policy {
        state: State {
            dirs: vec![dir.clone(), world.home.join(".agent-cache")],
            settings: vec![
                Setting::File(dir.join("hooks.json"), "{}"),
                Setting::File(dir.join("settings.json"), "{}"),
                Setting::Dir(dir.join("plugins")),
            ],
            needs: vec![world.home.join(".ssh")],
        },
        ..world.policy()
    };
    let sandbox = sandbox::prepare(Mode::Auto, &policy, &bwrap).expect("a sandbox");
    let script = "cd ~/.agent && cat login && echo new > login.new && mv login.new login
        for file in hooks.json settings.json plugins/evil; do
            (echo evil > $file) 2> /dev/null && echo did $file; (echo evil > new; mv new $file) 2> /dev/null
        done
        rm -rf plugins settings.json 2> /dev/null; echo cached > ~/.agent-cache/c
        cat ~/.ssh/id_ed25519";
    assert_eq!(said(&world.spec(&sandbox, script)).1, "tokenthe key");
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).expect("reads");
    assert_eq!(read("login"), "new\n");
    assert_eq!(read("hooks.json"), "{\"mine\": 1}");
    assert_eq!(read("settings.json"), "{}");
    assert_eq!(
        std::fs::read_dir(dir.join("plugins"))
            .expect("lists")
            .count(),
        0
    );
    assert!(world.home.join(".agent-cache/c").exists());
}

#[test]
fn our_own_files_beside_an_answer_cannot_be_reached() {
    for abilities in both() {
        let world = World::new();
        std::fs::write(world.place.scratch().join("protected.json"), "ours").expect("writes");
        let shared = sandbox::shared(&world.place.scratch());
        let script = format!(
            "echo 1 > {}/answer.json && (echo evil > ../scratch/protected.json) 2> /dev/null || echo kept",
            shared.display()
        );
        assert_eq!(world.says(&abilities, &script), "kept");
        assert!(shared.join("answer.json").exists());
    }
}

#[test]
fn what_is_written_to_a_build_cache_stays_with_the_run_and_credentials_in_it_stay_hidden() {
    let Some(bwrap) = bwrap() else { return };
    let world = World::new();
    let cache = world.home.join(".cache");
    for (name, content) in [
        ("tool/package", "fetched"),
        ("huggingface/token", "secret"),
        ("huggingface/model", "big"),
    ] {
        std::fs::create_dir_all(cache.join(name).parent().expect("a parent")).expect("makes");
        std::fs::write(cache.join(name), content).expect("writes");
    }
    let layers = world.place.work().with_file_name("layers");
    std::fs::create_dir(&layers).expect("makes");
    let policy = |network| Policy {
        layered: vec![cache.clone()],
        layers: Some(layers.clone()),
        network,
        ..world.policy()
    };
    let prepare = |network| {
        let sandbox = sandbox::prepare(Mode::Required, &policy(network), &bwrap);
        sandbox.expect("a sandbox")
    };
    let script =
        "cd ~/.cache && cat tool/package && echo evil > tool/package && echo more > tool/more
        rm -f tool/gone; (mkdir new) 2> /dev/null; cat huggingface/token huggingface/model
        grep CapEff /proc/self/status; (unshare -m true) 2> /dev/null || echo no rights";
    let (_, text) = said(&world.spec(&prepare(Network::On), script));
    let effective = match rustix::process::geteuid().is_root() {
        true => "CapEff:\t000000000000000b",
        false => "CapEff:\t0000000000000000",
    };
    assert_eq!(text, format!("fetchedbig{effective}\nno rights"));
    // The next program of the run sees it, and nobody else.
    let (_, text) = said(&world.spec(&prepare(Network::Off), "cat ~/.cache/tool/*"));
    assert_eq!(text, "more\nevil");
    let read = |name: &str| std::fs::read_to_string(cache.join(name)).expect("reads");
    assert_eq!(read("tool/package"), "fetched");
    assert!(!cache.join("tool/more").exists());
    sandbox::drop_layers(&layers).expect("removes");
    assert!(!layers.exists());
}

#[test]
fn the_name_the_status_and_the_input_of_a_program_come_through() {
    for abilities in both() {
        let world = World::new();
        let sandbox = world.sandbox(&abilities);
        let mut spec = world.spec(&sandbox, "cat; pwd -P; exit 7");
        spec.stdin = b"input\n".to_vec();
        let (finished, said) = said(&spec);
        let work = world.place.work().canonicalize().expect("a path");
        assert_eq!(said, format!("input\n{}", work.display()));
        assert_eq!(finished.end, End::Exited(Some(7)));
    }
}

#[test]
fn a_script_of_the_users_in_a_temporary_directory_is_found() {
    let Some(bwrap) = bwrap() else { return };
    let world = World::new();
    let elsewhere = Place::new();
    let script = elsewhere.file("agent.sh");
    std::fs::write(&script, "echo from the script").expect("writes");
    let mut spec = world.spec(&world.sandbox(&bwrap), "");
    spec.argv = vec!["sh".into(), script.into()];
    assert_eq!(said(&spec).1, "from the script");
}

#[test]
fn a_confined_program_may_use_the_grace_to_say_its_last_words() {
    for abilities in both() {
        let world = World::new();
        let script = "trap 'echo last; exit 0' TERM; echo up; while :; do sleep 0.05; done";
        let mut spec = world.spec(&world.sandbox(&abilities), script);
        spec.wall = Duration::from_millis(600);
        let (finished, said) = said(&spec);
        assert_eq!(finished.end, End::TimeOut);
        assert!(said.lines().any(|it| it == "last"), "{said}");
    }
}

#[test]
fn g04_the_whole_confined_tree_is_ended() {
    for abilities in both() {
        let world = World::new();
        let script = "setsid sh -c 'trap \"\" TERM; while :; do sleep 0.1; echo x >> alive; done' &
            (setsid sh -c 'trap \"\" TERM; while :; do sleep 0.1; echo x >> alive; done' > /dev/null 2>&1 &)
            trap '' TERM; while :; do sleep 0.1; done";
        let mut spec = world.spec(&world.sandbox(&abilities), script);
        spec.wall = Duration::from_millis(500);
        let started = Instant::now();
        let (finished, _) = said(&spec);
        assert_eq!(
            finished,
            Finished {
                end: End::TimeOut,
                survivors: vec![]
            }
        );
        assert!(started.elapsed() < Duration::from_secs(5));
        let before = world.place.read("alive");
        std::thread::sleep(Duration::from_millis(400));
        assert_eq!(world.place.read("alive"), before, "nobody writes any more");
    }
}

#[test]
fn g04_what_a_confined_program_leaves_behind_goes_with_it() {
    for abilities in both() {
        let world = World::new();
        let script = "(setsid sh -c 'trap \"\" TERM; while :; do sleep 0.1; echo x >> alive; done' \
            > /dev/null 2>&1 &); while [ ! -s alive ]; do sleep 0.02; done; exit 3";
        let (finished, _) = said(&world.spec(&world.sandbox(&abilities), script));
        assert_eq!(finished.end, End::Exited(Some(3)));
        let before = world.place.read("alive");
        std::thread::sleep(Duration::from_millis(400));
        assert_eq!(world.place.read("alive"), before);
    }
}

#[test]
fn g04_when_the_guard_is_killed_the_confined_tree_dies_with_it() {
    let Some(bwrap) = bwrap() else { return };
    let world = World::new();
    let mut spec = world.spec(
        &world.sandbox(&bwrap),
        "trap '' TERM; setsid sleep 60 & echo up; while :; do sleep 0.1; echo x >> alive; done",
    );
    spec.wall = Duration::from_secs(10);
    let list = world.place.list();
    let alive = world.place.file("alive");
    let killer = std::thread::spawn(move || {
        eventually("it is up", Duration::from_secs(5), || alive.exists());
        let text = std::fs::read_to_string(&list).expect("a list");
        let guard = text
            .lines()
            .find_map(|line| line.strip_prefix("guard ")?.split(' ').next()?.parse().ok());
        let pid = rustix::process::Pid::from_raw(guard.expect("a guard")).expect("a pid");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("kills");
    });
    let (finished, _) = said(&spec);
    killer.join().expect("killed");
    assert_eq!(finished.end, End::Exited(None));
    let before = world.place.read("alive");
    std::thread::sleep(Duration::from_millis(400));
    assert_eq!(world.place.read("alive"), before);
}

#[test]
fn a_mechanism_that_fails_for_these_very_paths_is_not_taken_for_the_programs_failure() {
    let world = World::new();
    let broken = world.home.join("broken-bwrap");
    std::fs::write(&broken, "#!/bin/sh\necho 'bwrap: no way' >&2\nexit 1\n").expect("writes");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&broken, mode).expect("chmod");
    let abilities = Abilities {
        bwrap: Bwrap::Works {
            program: broken,
            layers: false,
        },
        landlock: None,
    };
    let sandbox = world.sandbox(&abilities);
    assert_eq!(
        sandbox.to_string(),
        "none (bwrap does not work here (no way) and the kernel has no Landlock)"
    );
    assert_eq!(said(&world.spec(&sandbox, "echo ran")).1, "ran");
    let refused = sandbox::prepare(Mode::Required, &world.policy(), &abilities);
    assert!(refused.is_err(), "{refused:?}");
}

#[test]
fn what_a_machine_can_do_is_known_within_a_second_and_costs_a_program_little() {
    let Some(bwrap) = bwrap() else { return };
    let started = Instant::now();
    sandbox::abilities();
    assert!(
        started.elapsed() < Duration::from_secs(1),
        "{:?}",
        started.elapsed()
    );
    let world = World::new();
    let sandbox = world.sandbox(&bwrap);
    let started = Instant::now();
    for _ in 0..10 {
        said(&world.spec(&sandbox, ":"));
    }
    println!("{:?} each", started.elapsed() / 10);
}

#[test]
fn a_pid_that_a_confined_program_tells_is_its_own_view() {
    let Some(bwrap) = bwrap() else { return };
    let world = World::new();
    said(&world.spec(&world.sandbox(&bwrap), "echo $$ > pid"));
    assert!(pid_in(&world.place.file("pid")) < 20);
}

#[test]
fn taking_caches_away_changes_nothing_that_a_link_in_them_leads_to() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new();
    let dir = world.place.scratch();
    let victim = dir.join("victim");
    std::fs::create_dir_all(&victim).unwrap();
    std::fs::set_permissions(&victim, PermissionsExt::from_mode(0o755)).unwrap();
    let layers = dir.join("layers");
    std::fs::create_dir_all(layers.join("evil/work")).unwrap();
    std::os::unix::fs::symlink(&victim, layers.join("evil/work/work")).unwrap();
    sandbox::drop_layers(&layers).unwrap();
    assert!(!layers.exists());
    assert_eq!(
        victim.metadata().unwrap().permissions().mode() & 0o777,
        0o755
    );
}

#[test]
fn the_machines_own_settings_cannot_be_changed_by_root_either() {
    for abilities in both() {
        let script = "for it in /proc/sys/kernel/core_pattern /proc/sysrq-trigger; do
            [ -w $it ] && (: 3>> $it) 2> /dev/null && echo $it is open; done; echo looked";
        let said = World::new().says(&abilities, script);
        assert_eq!(said, "looked", "{abilities:?}");
    }
}
