//! `sim`: runs schedules of a world: the quorum log's cores, whole single nodes, or the control plane's cores.

use nuthatch_quorum::types::mix;
use nuthatch_sim::{control, group, keeper, node, quorum};
use std::process::ExitCode;

const USAGE: &str = "\
usage: sim [--world W] [--theme M] --seed N            prints the trace of one schedule
       sim [--world W] [--theme M] --from A --count N  runs schedules, prints those that fail, a hash of all traces and how many an hour of one CPU runs
       with --first it ends at the first that fails
worlds are quorum (the quorum log's cores, if none is named), keeper (the same on real directories), node (whole
single nodes), control (the control plane's cores) and group (the built-in catalog's members); themes of the quorum log are the faults of one
classic mistake, m1 to m21, that of whole nodes is damage (bits that flip and writes that go astray while a node
runs, nothing else), those of the control plane its machines: moves, moves-apart, copies, changes, restores, imports, sweeps, rosters";

/// What the command line asks for.
enum Task {
    One(u64),
    Many { from: u64, count: u64 },
}

/// A world that schedules run in.
enum World {
    Quorum(quorum::Options),
    Node(node::Options),
    Control(control::Options),
    Group(group::Options),
    Keeper(keeper::Options),
}

/// What one schedule has shown: what it did, and what was broken.
struct Shown {
    did: String,
    hash: u64,
    steps: u64,
    broken: Option<String>,
}

/// What the schedules of a range did, added up.
#[derive(Default)]
struct Totals {
    quorum: quorum::Summary,
    node: node::Summary,
    control: control::Summary,
    group: group::Summary,
    keeper: keeper::Summary,
}

fn task(args: &[String]) -> Option<Task> {
    let value = |name: &str| -> Option<u64> {
        let at = args.iter().position(|arg| arg == name)?;
        args.get(at + 1)?.parse().ok()
    };
    match args.len() {
        2 => value("--seed").map(Task::One),
        4 => Some(Task::Many { from: value("--from")?, count: value("--count")? }),
        _ => None,
    }
}

/// Takes `NAME VALUE` out of the arguments; none without it, or without a value.
fn take(args: &mut Vec<String>, name: &str) -> Option<String> {
    let at = args.iter().position(|arg| arg == name)?;
    args.drain(at..(at + 2).min(args.len())).nth(1)
}

/// The world that the arguments name; none when there is no such world or theme.
fn world(args: &mut Vec<String>) -> Option<World> {
    let named = take(args, "--world");
    let theme = take(args, "--theme");
    match (named.as_deref().unwrap_or("quorum"), theme) {
        ("node", None) => Some(World::Node(node::Options::drawn())),
        ("group", None) => Some(World::Group(group::Options::drawn())),
        ("keeper", None) => Some(World::Keeper(keeper::Options::drawn())),
        // Nothing else fails than what is damaged while the process runs.
        ("node", Some(name)) if name == "damage" => {
            let (mix, damage) = (Some(node::Mix::none()), node::Damage::Running);
            Some(World::Node(node::Options { mix, damage, ..node::Options::drawn() }))
        }
        ("control", None) => Some(World::Control(control::Options::drawn())),
        ("control", Some(name)) => {
            let machine = control::Machine::ALL.into_iter().find(|one| one.name() == name)?;
            let machine = Some(machine);
            Some(World::Control(control::Options { machine, ..control::Options::drawn() }))
        }
        ("quorum", None) => Some(World::Quorum(quorum::Options::drawn())),
        ("quorum", Some(name)) => {
            let theme = quorum::THEMES.iter().find(|theme| theme.name == name)?;
            let mix = Some(theme.mix());
            Some(World::Quorum(quorum::Options { mix, ..quorum::Options::drawn() }))
        }
        _ => None,
    }
}

impl World {
    fn print(&mut self) {
        match self {
            World::Quorum(options) => options.printed = true,
            World::Node(options) => options.printed = true,
            World::Control(options) => options.printed = true,
            World::Group(options) => options.printed = true,
            World::Keeper(options) => options.printed = true,
        }
    }

    fn run(&self, seed: u64, totals: &mut Totals) -> Shown {
        match self {
            World::Quorum(options) => {
                let (summary, result) = quorum::run(seed, options);
                totals.add_quorum(&summary);
                shown(format!("{summary:?}"), summary.hash, summary.steps, result)
            }
            World::Node(options) => {
                let (summary, result) = node::run(seed, options);
                totals.node.add(&summary);
                shown(format!("{summary:?}"), summary.hash, summary.steps, result)
            }
            World::Group(options) => {
                let (summary, result) = group::run(seed, options);
                totals.group.add(&summary);
                shown(format!("{summary:?}"), summary.hash, summary.steps, result)
            }
            World::Keeper(options) => {
                let (summary, result) = keeper::run(seed, options);
                totals.keeper.add(&summary);
                shown(format!("{summary:?}"), summary.hash, summary.steps, result)
            }
            World::Control(options) => {
                let (summary, result) = control::run(seed, options);
                totals.control.add(&summary);
                shown(format!("{summary:?}"), summary.hash, summary.steps, result)
            }
        }
    }

    fn report(&self, totals: &Totals) -> String {
        match self {
            World::Quorum(_) => {
                let total = &totals.quorum;
                format!(
                    "{} entries committed, {} epochs, {} faults, {} disks harmed, {} entries lost \
                     beyond tolerance and recorded",
                    total.committed, total.epochs, total.faults, total.disks, total.alarmed
                )
            }
            World::Node(_) => totals.node.report(),
            World::Control(_) => totals.control.report(),
            World::Keeper(_) => totals.keeper.report(),
            World::Group(_) => {
                let total = &totals.group;
                format!(
                    "{} answers, {} revisions, {} terms, {} faults, {} disks lost or set back ({} set back)",
                    total.answers,
                    total.revision,
                    total.terms,
                    total.faults,
                    total.disks,
                    total.images
                )
            }
        }
    }
}

impl Totals {
    fn add_quorum(&mut self, summary: &quorum::Summary) {
        let total = &mut self.quorum;
        total.committed += summary.committed;
        total.epochs += summary.epochs;
        total.faults += summary.faults;
        total.disks += summary.disks;
        total.alarmed += summary.alarmed;
    }
}

fn shown<V: ToString>(did: String, hash: u64, steps: u64, result: Result<(), V>) -> Shown {
    Shown { did, hash, steps, broken: result.err().map(|violation| violation.to_string()) }
}

/// A panic is something broken, too.
fn run_loudly(world: &World, seed: u64, totals: &mut Totals) -> Shown {
    let run = std::panic::AssertUnwindSafe(|| world.run(seed, totals));
    std::panic::catch_unwind(run).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map_or("a panic", String::as_str);
        let first = text.lines().next().unwrap_or_default();
        Shown { did: String::new(), hash: 0, steps: 0, broken: Some(format!("panicked: {first}")) }
    })
}

fn one(seed: u64, mut world: World) -> ExitCode {
    world.print();
    let shown = world.run(seed, &mut Totals::default());
    println!("seed {seed}: {}", shown.did);
    match shown.broken {
        None => ExitCode::SUCCESS,
        Some(violation) => {
            println!("seed {seed}: {violation}");
            ExitCode::FAILURE
        }
    }
}

fn many(from: u64, count: u64, first: bool, world: &World) -> ExitCode {
    let began = cpu_seconds();
    let mut totals = Totals::default();
    let (mut failed, mut steps, mut traces) = (0, 0, 0);
    for seed in from..from.saturating_add(count) {
        let shown = run_loudly(world, seed, &mut totals);
        steps += shown.steps;
        traces = mix(traces, shown.hash);
        if let Some(violation) = shown.broken {
            failed += 1;
            println!("{seed} {violation}");
            if first {
                return ExitCode::FAILURE;
            }
        }
    }
    let seconds = (cpu_seconds() - began).max(0.01);
    println!(
        "{count} schedules, {steps} steps, {}, {failed} failed; all traces together {traces:016x}\n\
         {seconds:.1} s of CPU: {:.0} schedules and {:.1} million steps an hour of one CPU",
        world.report(&totals),
        count as f64 / seconds * 3600.0,
        steps as f64 / seconds * 3600.0 / 1e6,
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What this process has used of all CPUs; `/proc` counts hundredths of a second.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> =
        stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

/// With the feature `mutations` NUTHATCH_RULE_OFF names a rule to do without, and what stands behind it.
/// The rules of log and streams read it themselves.
#[cfg(feature = "mutations")]
fn turn_off() {
    use nuthatch_quorum::rules::{Rule, turn_off};
    let name = std::env::var("NUTHATCH_RULE_OFF").unwrap_or_default();
    let rule = Rule::ALL.iter().copied().find(|rule| rule.name() == name);
    turn_off(&[rule, rule.and_then(Rule::behind)].into_iter().flatten().collect::<Vec<_>>());
    let of_group = nuthatch_catalog_group::rules::Rule::ALL.iter().copied();
    let of_group: Vec<_> = of_group.filter(|rule| rule.name() == name).collect();
    nuthatch_catalog_group::rules::turn_off(&of_group);
}

fn main() -> ExitCode {
    #[cfg(feature = "mutations")]
    turn_off();
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let world = world(&mut args);
    let first = args.iter().position(|arg| arg == "--first").map(|at| args.remove(at)).is_some();
    match (task(&args), world) {
        (Some(Task::One(seed)), Some(world)) => one(seed, world),
        (Some(Task::Many { from, count }), Some(world)) => many(from, count, first, &world),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}
