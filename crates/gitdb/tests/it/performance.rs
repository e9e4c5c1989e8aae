//! Side by side with stock git; run with `--ignored --nocapture`. Only ratios mean anything.

use std::time::{Duration, Instant};

use crate::common::{MESSAGE, Stage, oid, open};
use gitdb::snapshot::{self, Hooks, Selection, Sign};

const FILES: usize = 10_000;

fn big() -> Stage {
    let repo = testkit::Repo::new();
    for n in 0..FILES {
        repo.write(
            format!("d{}/e{}/f{n}.txt", n % 40, n % 7),
            format!("{n}\n").repeat(20),
        );
    }
    repo.git(&["add", "-A"]);
    repo.git(&["commit", "-qm", "many files"]);
    repo.git(&["repack", "-adq"]);
    // Else the first fsync pays for the ten thousand files just written.
    let synced = std::process::Command::new("sync").status();
    assert!(synced.is_ok_and(|it| it.success()));
    Stage::on(repo)
}

fn change(stage: &Stage, round: usize) {
    for n in (0..FILES).step_by(FILES / 50) {
        stage.repo.write(
            format!("d{}/e{}/f{n}.txt", n % 40, n % 7),
            format!("{round} {n}\n").repeat(20),
        );
    }
}

fn ours(stage: &Stage) -> [Duration; 5] {
    let base = oid(&stage.repo.git(&["rev-parse", "HEAD"]));
    let start = Instant::now();
    let db = open(&stage.repo);
    let opened = start.elapsed();
    snapshot::survey(&db).unwrap();
    let surveyed = start.elapsed();
    let expected = snapshot::Expected {
        branch: stage.branch,
        start_tip: &base,
    };
    let prepared = snapshot::prepare(
        &db,
        &expected,
        &base,
        MESSAGE,
        Selection::default(),
        Sign::Never,
        Hooks::Skip,
    )
    .unwrap();
    let done = start.elapsed();
    snapshot::changes(&db, &base, &prepared.commit).unwrap();
    let listed = start.elapsed();
    snapshot::land(&db, &prepared).unwrap();
    [opened, surveyed, done, listed, start.elapsed()]
}

#[test]
#[ignore = "measures"]
fn a_stage_commit_costs_less_than_twice_add_and_commit() {
    let stage = big();
    let (mut us, mut git) = (Vec::new(), Vec::new());
    for round in 0..8 {
        change(&stage, round * 2);
        let start = Instant::now();
        stage.repo.git(&["add", "-A"]);
        stage.repo.git(&["commit", "-qm", "x"]);
        git.push(start.elapsed());
        change(&stage, round * 2 + 1);
        us.push(ours(&stage));
    }
    git.sort();
    us.sort_by_key(|it| it[4]);
    println!("git {:?}\nours {:?}", git[4], us[4]);
    println!(
        "ratio ours/git {:.2}",
        us[4][4].as_secs_f64() / git[4].as_secs_f64()
    );
    assert!(us[4][4] < git[4] * 2);
}
