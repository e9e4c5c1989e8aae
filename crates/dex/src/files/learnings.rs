//! `.dex/learnings.md`: what was learned, grown across cycles. Our rewrite keeps every line it
//! does not understand.
//!
//! ```text
//! # Learnings
//!
//! - **<category>**: <insight> | <context>
//! ```
//!
//! What an agent says is data: each text is put on one line, so that it cannot add lines of its
//! own to a file that later agents read.

use std::collections::{BTreeSet, HashSet};

/// From the root of the work tree.
pub const PATH: &str = ".dex/learnings.md";

/// One learning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Insight {
    /// `build`, `testing`, `api`, `architecture`, `tooling`, `workaround`, or another word.
    pub category: String,
    /// What was learned.
    pub insight: String,
    /// Where.
    pub context: String,
}

/// Longest insight that is kept, in characters.
const MAX_INSIGHT: usize = 1000;
/// Longest context that is kept, in characters.
const MAX_CONTEXT: usize = 300;

/// The learnings of a file, in its order. Other lines are prose.
pub fn insights(file: &str) -> Vec<Insight> {
    file.lines().filter_map(parse).collect()
}

/// The file with new insights added: grouped by category in first-seen order, duplicates
/// (by lower-case, collapsed white space) left out, at most `max_per_category` (the newest) of
/// each, unknown lines kept where they stand. Unchanged bytes when nothing is new.
///
/// Lines that are there are never moved: a new one goes behind the last of its category, so
/// that two branches that both learned something merge by `merge=union`.
pub fn add(file: &str, new: &[Insight], max_per_category: usize) -> String {
    let mut known: HashSet<String> = insights(file).iter().map(key).collect();
    let fresh: Vec<Insight> = new
        .iter()
        .filter_map(tidy)
        .filter(|insight| known.insert(key(insight)))
        .collect();
    if fresh.is_empty() {
        return file.to_owned();
    }
    let newline = match file.lines().next() {
        Some(first) if file[first.len()..].starts_with("\r\n") => "\r\n",
        _ => "\n",
    };
    let mut lines: Vec<String> = match file.is_empty() {
        true => vec!["# Learnings\n".to_owned(), "\n".to_owned()],
        false => file.split_inclusive('\n').map(str::to_owned).collect(),
    };
    if let Some(last) = lines.last_mut()
        && !last.ends_with('\n')
    {
        last.push_str(newline);
    }
    let mut touched = BTreeSet::new();
    for insight in fresh {
        let place = lines
            .iter()
            .rposition(|line| category(line).is_some_and(|it| it == insight.category))
            .map_or(lines.len(), |last| last + 1);
        lines.insert(place, format!("{}{newline}", render(&insight)));
        touched.insert(insight.category);
    }
    for category in touched {
        drop_oldest(&mut lines, &category, max_per_category.max(1));
    }
    lines.concat()
}

/// The last lines worth telling an agent, at most `max_bytes`.
///
/// Whole lines, but for one that alone is too long; no headings and no empty lines.
pub fn tail(file: &str, max_bytes: usize) -> String {
    let mut kept = Vec::new();
    let mut left = max_bytes;
    let worth = |line: &&str| !line.is_empty() && !line.starts_with('#');
    for line in file.lines().map(str::trim_end).filter(worth).rev() {
        if line.len() < left {
            left -= line.len() + 1;
            kept.push(line);
            continue;
        }
        if kept.is_empty() && left > 0 {
            kept.push(&line[..line.floor_char_boundary(left - 1)]);
        }
        break;
    }
    kept.iter().rev().map(|line| format!("{line}\n")).collect()
}

/// `- **<category>**: <insight> | <context>`; the insight ends at the first ` | `.
fn parse(line: &str) -> Option<Insight> {
    let line = line.trim_end_matches(['\n', '\r']);
    let (category, rest) = line.strip_prefix("- **")?.split_once("**: ")?;
    let (insight, context) = rest.split_once(" | ")?;
    let word = !category.is_empty() && category.chars().all(|c| c.is_alphanumeric() || c == '_');
    (word && !insight.is_empty() && !context.is_empty()).then(|| Insight {
        category: category.to_owned(),
        insight: insight.to_owned(),
        context: context.to_owned(),
    })
}

fn category(line: &str) -> Option<String> {
    parse(line).map(|insight| insight.category)
}

fn render(insight: &Insight) -> String {
    let Insight {
        category,
        insight,
        context,
    } = insight;
    format!("- **{category}**: {insight} | {context}")
}

fn key(insight: &Insight) -> String {
    one_line(&insight.insight, usize::MAX).to_lowercase()
}

/// The insight as a line that reads back as itself; none when nothing was said.
fn tidy(raw: &Insight) -> Option<Insight> {
    // A bar inside the insight would end it.
    let insight = one_line(&raw.insight.replace('|', "/"), MAX_INSIGHT);
    if insight.is_empty() {
        return None;
    }
    let context = match one_line(&raw.context, MAX_CONTEXT) {
        text if text.is_empty() => "-".to_owned(),
        text => text,
    };
    let category: String = one_line(&raw.category, 40)
        .chars()
        .map(|c| if c.is_alphanumeric() { c } else { '_' })
        .collect();
    Some(Insight {
        category: match category.is_empty() {
            true => "general".to_owned(),
            false => category,
        },
        insight,
        context,
    })
}

/// White space collapsed, control characters gone, cut at `max` characters.
fn one_line(text: &str, max: usize) -> String {
    let spaced: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let line = spaced.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(max) {
        None => line,
        Some((end, _)) => format!("{}…", line[..end].trim_end()),
    }
}

fn drop_oldest(lines: &mut Vec<String>, wanted: &str, max: usize) {
    let is_of = |line: &String| category(line).is_some_and(|it| it == wanted);
    let mut over = lines
        .iter()
        .filter(|line| is_of(line))
        .count()
        .saturating_sub(max);
    lines.retain(|line| {
        let drop = over > 0 && is_of(line);
        over -= usize::from(drop);
        !drop
    });
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn insight(category: &str, insight: &str, context: &str) -> Insight {
        Insight {
            category: category.into(),
            insight: insight.into(),
            context: context.into(),
        }
    }

    #[test]
    fn new_learnings_join_their_category_and_foreign_lines_stay() {
        let file = "# Learnings\n\nA note by hand.\n- **build**: a | x\n- **mock**: no bar here\n- **api**: b | y\n";
        let new = [insight("build", "c", "z"), insight("testing", "d", "w")];
        insta::assert_snapshot!(add(file, &new, 20), @r"
        # Learnings

        A note by hand.
        - **build**: a | x
        - **build**: c | z
        - **mock**: no bar here
        - **api**: b | y
        - **testing**: d | w
        ");
    }

    #[test]
    fn nothing_new_changes_no_byte() {
        let file = "- **build**: Use  the cache | x";
        assert_eq!(
            add(file, &[insight("api", " use THE\ncache ", "y")], 20),
            file
        );
        assert_eq!(add("", &[], 20), "");
    }

    #[test]
    fn the_oldest_of_a_full_category_goes() {
        let mut file = String::new();
        for n in 0..25 {
            file = add(&file, &[insight("build", &format!("fact {n}"), "x")], 20);
        }
        let kept = insights(&file);
        assert_eq!(kept.len(), 20);
        assert_eq!(kept[0].insight, "fact 5");
        assert!(file.starts_with("# Learnings\n\n- **build**"));
    }

    #[test]
    fn an_agent_cannot_add_lines_of_its_own_b11() {
        let new = [insight("a b\n", "x\n# Do this | now\u{1b}[2J", "\n\n")];
        insta::assert_snapshot!(add("", &new, 20), @r"
        # Learnings

        - **a_b**: x # Do this / now [2J | -
        ");
    }

    #[test]
    fn windows_line_ends_stay() {
        let file = "# Learnings\r\n\r\n- **api**: a | b\r\n";
        let added = add(file, &[insight("api", "c", "d")], 20);
        assert_eq!(added, format!("{file}- **api**: c | d\r\n"));
    }

    #[test]
    fn the_tail_is_whole_lines_within_its_bound() {
        let file = "# Learnings\n\n- **a**: one | x\n- **b**: two | y\n";
        assert_eq!(tail(file, 20), "- **b**: two | y\n");
        assert_eq!(tail(file, 1000), "- **a**: one | x\n- **b**: two | y\n");
        assert_eq!(tail("äöü", 4), "ä\n");
        assert_eq!(tail(file, 0), "");
    }

    proptest! {
        #[test]
        fn what_is_added_reads_back_once(
            file in prop::collection::vec("(- \\*\\*[a-c]\\*\\*: )?[a-c |\r]{0,8}\n", 0..6),
            new in prop::collection::vec(("\\PC{0,6}", ".{0,12}", ".{0,6}"), 0..5),
        ) {
            let file = file.concat();
            let new: Vec<_> = new.iter().map(|(a, b, c)| insight(a, b, c)).collect();
            let once = add(&file, &new, 100);
            prop_assert_eq!(&add(&once, &new, 100), &once);
            for line in file.lines() {
                prop_assert!(once.lines().any(|it| it == line));
            }
            for wanted in new.iter().filter_map(tidy) {
                prop_assert!(insights(&once).iter().any(|it| key(it) == key(&wanted)));
            }
        }

        #[test]
        fn the_tail_keeps_its_bound(file in ".*", max in 0usize..64) {
            prop_assert!(tail(&file, max).len() <= max);
        }
    }
}
