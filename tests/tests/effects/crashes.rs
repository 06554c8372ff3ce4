//! Scripts that are cut off anywhere come to the same end, and do nothing more often than the
//! table of [`flow_core::effect`] says.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use flow_core::message::{Message, Role};
use flow_core::store::SessionStore;
use flow_core::store::memory::MemoryStore;
use flow_core::store::mongodb::MongoStore;
use flow_core::store::sqlite::SqliteStore;
use serde_json::Value;
use tests::failing_store::Fault;
use tests::lasting::lasting;
use tests::ordering;

use super::policies::Bank;
use super::world::{ANSWERED, CUT_OFF, Cut, Played, Random, World, random_cut};
use super::{Durability, Script, session};

/// How many runs are cut off, for each store and durability.
const CRASHES: usize = 500;

/// How many of them with tools that have a policy of their own.
const CRASHES_OF_POLICIES: usize = 30;

/// How many for each durability over the wire: 510 in all. One takes a third of a second on the
/// server that the tests start, nearly all of it waiting, so some are played side by side.
const CRASHES_ON_MONGODB: usize = 170;

/// How many of them with tools that have a policy of their own, with one durability.
const CRASHES_OF_POLICIES_ON_MONGODB: usize = 40;

/// How many databases are used side by side.
const DATABASES: usize = 8;

/// How many of them are of one script.
const CRASHES_PER_SCRIPT: usize = 10;

/// A flow whose scripts are cut off.
trait Case: Played {
    /// The messages of a session.
    fn make_script(random: &mut Random) -> Vec<String>;

    /// Checks what a script does that nothing cuts off.
    fn check_calm(script: &[String], done: &[String]);

    /// Checks what a script has done that was cut off.
    fn check(script: &[String], done: &[String], calm: &[String], durability: Durability);
}

impl Case for Script {
    fn make_script(random: &mut Random) -> Vec<String> {
        random_script(random)
    }

    fn check_calm(script: &[String], done: &[String]) {
        let charged = done.iter().filter(|line| line.starts_with("charge")).count();
        assert_eq!(charged, charges(script), "{script:?}: {done:?}");
        assert!(count(done).iter().all(|(made, n)| *n == 1 || !made.starts_with("charge")));
    }

    fn check(script: &[String], done: &[String], calm: &[String], durability: Durability) {
        check_counts(done, calm, durability);
        if !script.iter().any(|text| text.contains("again")) {
            check_values(done);
        }
    }
}

impl Case for Bank {
    fn make_script(random: &mut Random) -> Vec<String> {
        let mut words: Vec<String> = Vec::new();
        for place in 0..2 + random.below(5) {
            let word = random.pick(&[
                "note", "charge", "wire", "wire", "look", "ask", "sleep", "beside", "again",
            ]);
            words.push(match word {
                "again" if words.iter().any(|word| word == "again") => continue,
                "note" | "charge" | "wire" | "sleep" => format!("{word}:{place}"),
                word => word.to_owned(),
            });
        }
        words.push(random.pick(&["end", "rest", "stay"]).to_owned());
        vec![words.join(" ")]
    }

    fn check_calm(script: &[String], done: &[String]) {
        let wires = of_tool(done, "wire");
        let words = script[0].split_whitespace();
        let repeated = script[0].split_once("again").map_or("", |(first, _)| first);
        let is_wire = |word: &&str| word.starts_with("wire") || *word == "beside";
        let expected = words.chain(repeated.split_whitespace()).filter(is_wire).count();
        assert_eq!(wires.len(), expected, "{script:?}: {done:?}");
        assert!(count(&wires).values().all(|n| *n == 1), "{wires:?}");
    }

    fn check(_: &[String], done: &[String], calm: &[String], durability: Durability) {
        let (wires, calm_wires) = (of_tool(done, "wire"), of_tool(calm, "wire"));
        for (wire, n) in count(&wires) {
            assert!(n == 1 && calm_wires.iter().any(|line| line == wire), "{n} times `{wire}`");
        }
        let cuts = done.iter().filter(|line| *line == CUT_OFF).count();
        assert!(calm_wires.len() - wires.len() <= cuts, "a wire is missing that nothing cut off");
        let (looks, calm_looks) = (of_tool(done, "look"), of_tool(calm, "look"));
        let (looks, calm_looks) = (count(&looks), count(&calm_looks));
        assert!(looks.keys().eq(calm_looks.keys()), "{looks:?}, not {calm_looks:?}");
        let others = |done: &[String]| -> Vec<String> {
            let is_other = |line: &&String| !line.starts_with("wire") && !line.starts_with("look");
            done.iter().filter(is_other).cloned().collect()
        };
        check_counts(&others(done), &others(calm), durability);
    }
}

/// The calls of one tool.
fn of_tool(done: &[String], tool: &str) -> Vec<String> {
    done.iter().filter(|line| line.starts_with(tool)).cloned().collect()
}

/// The messages of a session.
fn random_script(random: &mut Random) -> Vec<String> {
    let turns = 1 + random.below(2);
    let mut names = Names::default();
    let mut script: Vec<Vec<String>> = Vec::new();
    for _ in 0..turns {
        let mut words: Vec<String> =
            (0..1 + random.below(5)).map(|_| random_word(random, &mut names, &WORDS, 0)).collect();
        if random.below(3) == 0 {
            let place = random.below(words.len());
            words.insert(place, "again".to_owned());
        }
        script.push(words);
    }
    let last = random.pick(&["end", "over", "stay"]);
    script.last_mut().unwrap().push(last.to_owned());
    script.into_iter().map(|words| words.join(" ")).collect()
}

/// What an action does.
const WORDS: [&str; 17] = [
    "note", "charge", "charge", "run", "approve", "ask", "sleep", "values", "decline", "both",
    "pair", "signal", "choose", "step", "try", "steps", "form",
];

/// What a step does that runs beside others. None of them can ask the user, and what they do is
/// told apart.
const BRANCH_WORDS: [&str; 11] = [
    "note", "charge", "charge", "charge", "run", "ask", "approve", "sleep", "values", "choose",
    "step",
];

/// What the next word is about.
#[derive(Default)]
struct Names {
    place: usize,
    /// How many times steps run side by side.
    groups: usize,
    /// The group and the branch, for a step that runs beside others.
    branch: Option<(usize, usize)>,
}

impl Names {
    fn next(&mut self) -> usize {
        self.place += 1;
        self.place
    }

    /// A number that says of which branch it is.
    fn next_of_branch(&mut self, (group, branch): (usize, usize)) -> usize {
        8000 + group % 10 * 100 + branch * 10 + self.next() % 10
    }
}

fn random_word(random: &mut Random, names: &mut Names, words: &[&str], depth: usize) -> String {
    let word = random.pick(words);
    match (word, names.branch) {
        ("charge" | "run", Some(branch)) => format!("{word}:{}", names.next_of_branch(branch)),
        ("note" | "run" | "values", _) => format!("{word}:{}", names.next()),
        ("charge", None) => format!("charge:{}", 1 + random.below(4)),
        ("sleep", _) => format!("sleep:{}", 1 + random.below(5000)),
        ("step" | "try" | "steps", _) if depth == 2 => "note:deep".to_owned(),
        ("step", _) => format!("step({})", random_words(random, names, words, depth)),
        ("try", _) => format!("try({} fail)", random_words(random, names, words, depth)),
        ("steps", _) => {
            names.groups += 1;
            let branches = (0..2 + random.below(2)).map(|branch| {
                names.branch = Some((names.groups, branch));
                let words = random_words(random, names, &BRANCH_WORDS, depth);
                if random.below(5) == 0 { format!("{words} fail") } else { words }
            });
            let branches: Vec<String> = branches.collect();
            names.branch = None;
            format!("steps({})", branches.join(" | "))
        }
        (word, _) => word.to_owned(),
    }
}

/// What a step does within another one.
fn random_words(random: &mut Random, names: &mut Names, words: &[&str], depth: usize) -> String {
    let count = 1 + random.below(3);
    let words: Vec<String> =
        (0..count).map(|_| random_word(random, names, words, depth + 1)).collect();
    words.join(" ")
}

/// The charges that a script makes, in each visit, as its words say.
fn charges(script: &[String]) -> usize {
    let count = |text: &str| -> usize {
        let of = |word: &str| match word {
            "pair" => 2,
            "both" => 1,
            word => usize::from(word.starts_with("charge:")),
        };
        text.split([' ', '(', ')', '|']).map(of).sum()
    };
    let visits = |text: &String| match text.split_once("again") {
        Some((first, rest)) => count(first) * 2 + count(rest),
        None => count(text),
    };
    script.iter().map(visits).sum()
}

/// What an effect is, whether it is repeated or not.
fn identity(line: &str) -> &str {
    line.strip_suffix(" true").or_else(|| line.strip_suffix(" false")).unwrap_or(line)
}

fn is_mark(line: &str) -> bool {
    line == ANSWERED || line == CUT_OFF || line.starts_with("values")
}

fn count(done: &[String]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for line in done.iter().filter(|line| !is_mark(line)) {
        *counts.entry(identity(line)).or_default() += 1;
    }
    counts
}

/// The group and the branch of what a step has done that runs beside others.
fn branch_of(made: &str) -> Option<(&str, &str)> {
    let number = made.strip_prefix("charge ").or_else(|| made.strip_prefix("run"))?;
    let number = number.split(' ').next().filter(|n| n.len() == 4 && n.starts_with('8'))?;
    Some((&number[1..2], &number[2..3]))
}

/// The effects that may be made again after the cut at a place of the list.
fn may_repeat(done: &[String], cut: usize, durability: Durability) -> Vec<&str> {
    let since = done[..cut].iter().rposition(|line| line == ANSWERED).map_or(0, |at| at + 1);
    let made: Vec<&str> =
        done[since..cut].iter().filter(|l| !is_mark(l)).map(|l| identity(l)).collect();
    match (durability, made.last()) {
        // Both of a pair may have been running.
        (Durability::Effect, Some(last)) if last.starts_with("charge 7") => {
            made.iter().copied().filter(|made| made.starts_with("charge 7")).collect()
        }
        // The last of each branch.
        (Durability::Effect, Some(last)) if branch_of(last).is_some() => {
            let group = branch_of(last).unwrap().0;
            let of_group = made.iter().filter_map(|made| Some((branch_of(made)?, *made)));
            let of_group = of_group.filter(|((of, _), _)| *of == group);
            of_group.collect::<BTreeMap<_, _>>().into_values().collect()
        }
        (Durability::Effect, last) => last.copied().into_iter().collect(),
        // The visits before the last one are committed.
        (Durability::Crossing, _) => {
            let visit = |made: &str| made.split(':').nth(1).and_then(|v| v.parse::<u64>().ok());
            let last = made.iter().copied().filter_map(visit).max();
            made.iter().copied().filter(|m| visit(m).is_none_or(|v| Some(v) == last)).collect()
        }
        _ => made,
    }
}

fn check_counts(done: &[String], calm: &[String], durability: Durability) {
    let (counts, calm) = (count(done), count(calm));
    let names =
        |counts: &BTreeMap<&str, usize>| counts.keys().copied().map(str::to_owned).collect();
    let (made, expected): (BTreeSet<String>, BTreeSet<String>) = (names(&counts), names(&calm));
    assert_eq!(made, expected, "the same effects, with the same keys");
    let cuts: Vec<usize> =
        done.iter().enumerate().filter(|(_, line)| *line == CUT_OFF).map(|(at, _)| at).collect();
    for (effect, count) in counts {
        let repeated = cuts.iter().flat_map(|cut| may_repeat(done, *cut, durability));
        let allowed = repeated.filter(|repeated| *repeated == effect).count();
        let least = calm[effect];
        assert!(
            (least..=least + allowed).contains(&count),
            "`{effect}` was made {count} times, not {least} to {}",
            least + allowed
        );
    }
    if durability == Durability::Effect {
        let mut seen = BTreeSet::new();
        for (at, line) in done.iter().enumerate().filter(|(_, l)| l.starts_with("charge")) {
            let again = !seen.insert(identity(line));
            let told = line.ends_with(" true");
            assert!(told || !again, "`{line}` is not told that it was made");
            // Its intent may have been stored by a run that was cut off before it was made.
            assert!(!told || again || cuts.iter().any(|cut| *cut < at), "`{line}` was not made");
        }
    }
}

/// Times and random numbers change only where the run before was cut off, and never to what
/// they were.
fn check_values(done: &[String]) {
    let mut latest: BTreeMap<&str, (&str, usize)> = BTreeMap::new();
    for (at, line) in done.iter().enumerate().filter(|(_, line)| line.starts_with("values")) {
        let (name, value) = line.split_once(' ').unwrap();
        if let Some((before, then)) = latest.insert(name, (value, at))
            && before != value
        {
            let since = &done[then..at];
            let cut = since.iter().position(|line| line == CUT_OFF);
            let answered = since.iter().position(|line| line == ANSWERED);
            let fresh = cut.is_some_and(|cut| answered.is_none_or(|answered| cut < answered));
            assert!(fresh, "{name} was {before}, is {value}");
        }
    }
}

struct Calm {
    doc: Value,
    done: Vec<String>,
    calls: usize,
}

/// Plays a script without a fault.
async fn play_calmly<F: Case>(
    script: &[String],
    durability: Durability,
    random: &mut Random,
) -> Calm {
    let mut world: World<F> = World::new(Arc::new(MemoryStore::new()), durability);
    world.play(script, random).await;
    let doc = world.doc().await.unwrap();
    let done = world.flow.done().take();
    F::check_calm(script, &done);
    Calm { doc: lasting(&doc), done, calls: world.store.calls() }
}

async fn play_with_cuts<F: Case>(
    store: &Arc<dyn SessionStore>,
    durability: Durability,
    script: &[String],
    calm: &Calm,
    random: &mut Random,
    hangs: bool,
) {
    let effects = calm.done.iter().filter(|line| !is_mark(line)).count();
    let mut world: World<F> = World::new(store.clone(), durability);
    let cut = random_cut(random, calm.calls, effects, hangs);
    world.arm(cut);
    if random.below(3) == 0 {
        // Another one while the first one is recovered from, or later.
        let (call, fault) = (random.below(calm.calls), Fault::FailAfter);
        if !matches!(cut, Cut::Store { .. }) {
            world.arm(Cut::Store { call, fault });
        }
    }
    println!("  {cut:?}");
    world.play(script, random).await;
    let doc = world.doc().await.unwrap();
    let done = world.flow.done().take();
    println!("  {done:#?}");
    assert_eq!(lasting(&doc), calm.doc);
    F::check(script, &done, &calm.done, durability);
    let mut messages: Vec<Message> = doc.memory["main"].messages.clone();
    assert_eq!(ordering::openai(&ordering::openai_body(&messages)), Ok(()));
    messages.push(Message { role: Role::User, ..messages[0].clone() });
    assert_eq!(ordering::anthropic(&ordering::anthropic_body(&messages)), Ok(()));
    assert!(store.delete(&session()).await.unwrap());
}

/// Each case prints its seed, which the harness shows of a test that fails.
async fn check_all<F: Case>(
    store: Arc<dyn SessionStore>,
    durability: Durability,
    hangs: bool,
    crashes: usize,
) {
    let seeds = 0..(crashes / CRASHES_PER_SCRIPT) as u64;
    check_seeds::<F>(store, durability, hangs, seeds).await;
}

async fn check_seeds<F: Case>(
    store: Arc<dyn SessionStore>,
    durability: Durability,
    hangs: bool,
    seeds: impl IntoIterator<Item = u64>,
) {
    for seed in seeds {
        let mut random = Random(seed);
        let script = F::make_script(&mut random);
        println!("seed {seed}, {durability:?}: {script:?}");
        let calm = play_calmly::<F>(&script, durability, &mut random).await;
        for _ in 0..CRASHES_PER_SCRIPT {
            play_with_cuts::<F>(&store, durability, &script, &calm, &mut random, hangs).await;
        }
    }
}

async fn check_sqlite<F: Case>(durability: Durability, crashes: usize) {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("sessions.db")).await.unwrap();
    check_all::<F>(Arc::new(store), durability, false, crashes).await;
}

#[tokio::test(start_paused = true)]
async fn a_script_ends_as_if_nothing_had_cut_it_off_in_memory() {
    for durability in super::DURABILITIES {
        check_all::<Script>(Arc::new(MemoryStore::new()), durability, true, CRASHES).await;
    }
}

#[tokio::test]
async fn a_script_ends_as_if_nothing_had_cut_it_off_in_sqlite_by_crossing() {
    check_sqlite::<Script>(Durability::Crossing, CRASHES).await;
}

#[tokio::test]
async fn a_script_ends_as_if_nothing_had_cut_it_off_in_sqlite_by_turn() {
    check_sqlite::<Script>(Durability::Turn, CRASHES).await;
}

#[tokio::test]
async fn a_script_ends_as_if_nothing_had_cut_it_off_in_sqlite_by_effect() {
    check_sqlite::<Script>(Durability::Effect, CRASHES).await;
}

#[tokio::test(start_paused = true)]
async fn no_call_is_made_twice_that_must_not_be_in_memory() {
    for durability in super::DURABILITIES {
        check_all::<Bank>(Arc::new(MemoryStore::new()), durability, true, CRASHES).await;
    }
}

#[tokio::test]
async fn no_call_is_made_twice_that_must_not_be_in_sqlite() {
    for durability in super::DURABILITIES {
        check_sqlite::<Bank>(durability, CRASHES_OF_POLICIES).await;
    }
}

async fn check_mongodb<F: Case>(durability: Durability, crashes: usize) {
    let seeds: Vec<u64> = (0..(crashes / CRASHES_PER_SCRIPT) as u64).collect();
    let databases = seeds.chunks(seeds.len().div_ceil(DATABASES)).map(async |seeds| {
        let Some(database) = tests::mongo_server::mongo().await else { return };
        let store = MongoStore::new(database).await.unwrap();
        check_seeds::<F>(Arc::new(store), durability, false, seeds.iter().copied()).await;
    });
    futures_util::future::join_all(databases).await;
}

#[tokio::test]
async fn a_script_ends_as_if_nothing_had_cut_it_off_in_mongodb_by_crossing() {
    check_mongodb::<Script>(Durability::Crossing, CRASHES_ON_MONGODB).await;
}

#[tokio::test]
async fn a_script_ends_as_if_nothing_had_cut_it_off_in_mongodb_by_turn() {
    check_mongodb::<Script>(Durability::Turn, CRASHES_ON_MONGODB).await;
}

#[tokio::test]
async fn a_script_ends_as_if_nothing_had_cut_it_off_in_mongodb_by_effect() {
    check_mongodb::<Script>(Durability::Effect, CRASHES_ON_MONGODB).await;
}

#[tokio::test]
async fn no_call_is_made_twice_that_must_not_be_in_mongodb() {
    check_mongodb::<Bank>(Durability::Turn, CRASHES_OF_POLICIES_ON_MONGODB).await;
}
