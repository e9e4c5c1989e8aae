use super::*;

fn dir(path: &str) -> Place {
    Place {
        path: path.into(),
        kind: Kind::Dir,
    }
}

fn file(path: &str) -> Place {
    Place {
        path: path.into(),
        kind: Kind::File,
    }
}

/// A project in a home, with everything in its usual place.
fn usual() -> Places {
    Places {
        writable: vec![dir("/home/u/project"), dir("/home/u/.claude")],
        read_only: vec![
            dir("/home/u/project/.git"),
            file("/home/u/.claude/settings.json"),
        ],
        hidden: vec![dir("/home/u/.ssh"), file("/home/u/.netrc")],
        services: vec![],
        layered: vec![],
        layers: None,
        tmp: "/scratch/tmp".into(),
        machine_tmp: vec!["/tmp".into(), "/var/tmp".into()],
        home: Some("/home/u".into()),
        empty_dir: "/scratch/nothing".into(),
        empty_file: "/scratch/nothing.txt".into(),
        network: Network::On,
        root: false,
    }
}

fn with_bwrap() -> Abilities {
    Abilities {
        bwrap: Bwrap::Works {
            program: "/usr/bin/bwrap".into(),
            layers: true,
        },
        landlock: Some(6),
    }
}

fn without_bwrap(landlock: Option<u32>) -> Abilities {
    Abilities {
        bwrap: Bwrap::Absent,
        landlock,
    }
}

fn shown(plan: &Plan) -> String {
    match plan {
        Plan::Bwrap { mounts, .. } => {
            let line = |mount: &Mount| match mount {
                Mount::ReadOnly(at) => format!("read-only {}", at.display()),
                Mount::Writable(at) => format!("writable {}", at.display()),
                Mount::Instead { from, at } => format!("{} at {}", from.display(), at.display()),
                Mount::Hidden { at, .. } => format!("hidden {}", at.display()),
                Mount::HiddenAround(at) => format!("hidden around {}", at.display()),
            };
            mounts.iter().map(line).collect::<Vec<_>>().join("\n")
        }
        Plan::Landlock { gaps, .. } | Plan::Nothing { gaps } => gaps
            .iter()
            .map(Gap::to_string)
            .collect::<Vec<_>>()
            .join("\n"),
    }
}

fn auto(places: &Places, abilities: &Abilities) -> String {
    shown(&plan(Mode::Auto, places, abilities).expect("a plan"))
}

#[test]
fn the_work_tree_is_writable_and_what_lies_in_it_is_protected_on_top() {
    insta::assert_snapshot!(auto(&usual(), &with_bwrap()), @r"
    /scratch/tmp at /tmp
    /scratch/tmp at /var/tmp
    writable /home/u/project
    writable /home/u/.claude
    hidden /home/u/.ssh
    hidden /home/u/.netrc
    read-only /home/u/project/.git
    read-only /home/u/.claude/settings.json
    ");
}

#[test]
fn c24_a_linked_work_tree_keeps_its_git_file_and_sees_the_directory_it_points_to() {
    let places = Places {
        writable: vec![dir("/data/wt")],
        read_only: vec![file("/data/wt/.git"), dir("/tmp/main/.git")],
        hidden: vec![],
        ..usual()
    };
    insta::assert_snapshot!(auto(&places, &with_bwrap()), @r"
    /scratch/tmp at /tmp
    /scratch/tmp at /var/tmp
    writable /data/wt
    read-only /data/wt/.git
    read-only /tmp/main/.git
    ");
}

#[test]
fn a_work_tree_inside_its_own_git_directory_is_writable_all_the_same() {
    let places = Places {
        writable: vec![dir("/p/repo.git/main")],
        read_only: vec![dir("/p/repo.git"), file("/p/repo.git/main/.git")],
        hidden: vec![],
        machine_tmp: vec![],
        ..usual()
    };
    insta::assert_snapshot!(auto(&places, &with_bwrap()), @r"
    read-only /p/repo.git
    writable /p/repo.git/main
    read-only /p/repo.git/main/.git
    ");
}

#[test]
fn a_work_tree_below_a_hidden_place_is_seen_and_the_place_around_it_is_not() {
    let places = Places {
        writable: vec![dir("/home/u/.aws/project")],
        read_only: vec![],
        hidden: vec![dir("/home/u/.aws")],
        machine_tmp: vec![],
        ..usual()
    };
    insta::assert_snapshot!(auto(&places, &with_bwrap()), @r"
    hidden around /home/u/.aws
    writable /home/u/.aws/project
    ");
}

#[test]
fn a_work_tree_that_is_the_temporary_directory_takes_its_place() {
    let places = Places {
        writable: vec![dir("/tmp")],
        read_only: vec![dir("/tmp/.git")],
        hidden: vec![],
        machine_tmp: vec!["/tmp".into()],
        ..usual()
    };
    insta::assert_snapshot!(auto(&places, &with_bwrap()), @r"
    writable /tmp
    read-only /tmp/.git
    ");
}

#[test]
fn a_place_that_would_undo_the_rest_is_refused() {
    let at = |path: &str| {
        let writable = vec![dir(path)];
        plan(
            Mode::Auto,
            &Places {
                writable,
                ..usual()
            },
            &with_bwrap(),
        )
        .expect_err("refused")
        .to_string()
    };
    insta::assert_snapshot!([at("/"), at("/home/u"), at("/home/u/.ssh")].join("\n"), @r"
    / cannot be made writable: everything would be
    /home/u cannot be made writable: everything would be
    /home/u/.ssh holds credentials and cannot be worked in
    ");
}

#[test]
fn what_landlock_alone_cannot_hold_is_said_and_refused_where_a_sandbox_is_required() {
    let offline = Places {
        network: Network::Off,
        services: vec![dir("/run/user/1000")],
        ..usual()
    };
    let linked = Places {
        read_only: vec![dir("/home/u/other/.git")],
        ..usual()
    };
    for (what, places, version) in [
        ("in place", &usual(), 6),
        ("in a linked work tree", &linked, 6),
        ("without network, with services", &offline, 6),
        ("on an old kernel", &offline, 2),
    ] {
        let abilities = without_bwrap(Some(version));
        let gaps = auto(places, &abilities);
        let required = plan(Mode::Required, places, &abilities);
        assert_eq!(required.is_ok(), gaps.is_empty(), "{what}: {gaps}");
    }
    insta::assert_snapshot!(auto(&usual(), &without_bwrap(Some(6))), @"can be changed: /home/u/project/.git, /home/u/.claude/settings.json");
    insta::assert_snapshot!(auto(&linked, &without_bwrap(Some(6))), @"");
    insta::assert_snapshot!(auto(&offline, &without_bwrap(Some(2))), @r"
    can be changed: /home/u/project/.git, /home/u/.claude/settings.json
    the network is not blocked
    can be asked to act: /run/user/1000
    files elsewhere can be emptied
    other processes can be sent signals
    ");
}

#[test]
fn where_nothing_works_a_run_goes_on_unless_a_sandbox_is_required_and_the_reason_is_kept() {
    let broken = Abilities {
        bwrap: Bwrap::Fails {
            program: "/usr/bin/bwrap".into(),
            why: "setting up uid map: Permission denied".into(),
        },
        landlock: None,
    };
    insta::assert_snapshot!(auto(&usual(), &broken), @"nothing is enforced: bwrap does not work here (setting up uid map: Permission denied) and the kernel has no Landlock");
    let refusal = plan(Mode::Required, &usual(), &without_bwrap(None)).expect_err("refused");
    insta::assert_snapshot!(refusal, @"a sandbox is required, and this machine cannot hold it: nothing is enforced: bwrap is not installed and the kernel has no Landlock");
}

#[test]
fn bwrap_that_may_not_work_gives_way_to_landlock() {
    let fails = Abilities {
        bwrap: Bwrap::Fails {
            program: "/usr/bin/bwrap".into(),
            why: "No permissions to create a new namespace".into(),
        },
        landlock: Some(4),
    };
    let plan = plan(Mode::Auto, &usual(), &fails).expect("a plan");
    assert!(matches!(plan, Plan::Landlock { .. }), "{plan:?}");
}

#[test]
fn a_work_tree_that_may_only_be_looked_at_is_kept_by_both_and_in_place() {
    let looking = Places {
        writable: vec![
            dir("/home/u/.claude"),
            dir("/home/u/project/.git/dex/shared"),
        ],
        read_only: vec![dir("/home/u/project"), dir("/home/u/project/.git")],
        machine_tmp: vec![],
        ..usual()
    };
    insta::assert_snapshot!(auto(&looking, &with_bwrap()), @r"
    writable /home/u/.claude
    read-only /home/u/project
    hidden /home/u/.ssh
    hidden /home/u/.netrc
    read-only /home/u/project/.git
    writable /home/u/project/.git/dex/shared
    ");
    insta::assert_snapshot!(auto(&looking, &without_bwrap(Some(6))), @"");
    let around = Places {
        writable: vec![dir("/home/u/projects")],
        read_only: vec![dir("/home/u/projects/one")],
        ..usual()
    };
    let keeps = |places: &Places, place: &str, abilities: &Abilities| {
        let plan = plan(Mode::Auto, places, abilities).expect("a plan");
        plan.keeps(Path::new(place))
    };
    for (places, place, bwrap, landlock) in [
        (&looking, "/home/u/project", true, true),
        (&looking, "/home/u/project/.git/dex/shared", false, false),
        (&usual(), "/home/u/project", false, false),
        (&usual(), "/home/u/other", true, true),
        (&usual(), "/tmp/x", false, true),
        // What a person opened around it, only a view of its own can close again.
        (&around, "/home/u/projects/one", true, false),
    ] {
        assert_eq!(keeps(places, place, &with_bwrap()), bwrap, "{place}");
        let alone = without_bwrap(Some(6));
        assert_eq!(keeps(places, place, &alone), landlock, "{place}");
        assert!(!keeps(places, place, &without_bwrap(None)), "{place}");
    }
}
