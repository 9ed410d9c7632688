//! The hot paths of this crate as named loops.
//!
//! `cargo bench -p nuthatch-protocol` prints nanoseconds per turn; add `-- NAME…` for some loops
//! only. `cargo bench -p nuthatch-protocol -- --instructions [NAME…]` prints instructions per turn
//! instead, which do not depend on how busy the machine is: each loop runs under
//! `valgrind --tool=callgrind` with two numbers of turns, and the difference is what turns cost.
//!
//! A loop can be profiled alone: `… -- --turns 1000000 NAME`.

mod loops;

use std::hint::black_box;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use loops::LOOPS;

/// One named loop: prepares its data, then does its work `turns` times in the returned closure.
type Prepare = fn() -> Box<dyn FnMut(u64)>;

/// How long one timed round lasts at least.
const ROUND: Duration = Duration::from_millis(40);
/// The best of this many rounds counts: noise only ever adds.
const ROUNDS: usize = 5;
/// Turns of the two runs whose instructions are subtracted.
const COUNTED_TURNS: [u64; 2] = [2_000, 12_000];

fn main() -> ExitCode {
    let mut names = Vec::new();
    let (mut measure, mut instructions, mut turns) = (false, false, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--bench" => measure = true,
            "--instructions" => instructions = true,
            "--turns" => turns = arguments.next().and_then(|text| text.parse::<u64>().ok()),
            _ => names.push(argument),
        }
    }
    if !measure && !instructions && turns.is_none() {
        // Run by `cargo test --all-targets`: see that every loop works, and measure nothing.
        turns = Some(1);
    }
    let wanted = |name: &str| names.is_empty() || names.iter().any(|part| name.contains(part));
    for (name, prepare) in LOOPS.iter().filter(|(name, _)| wanted(name)) {
        if let Some(turns) = turns {
            prepare()(turns);
        } else if instructions {
            match count_instructions(name) {
                Ok(count) => println!("{name:<28} {count:>8.1} instructions"),
                Err(reason) => {
                    eprintln!("cannot count instructions: {reason}");
                    return ExitCode::FAILURE;
                }
            }
        } else {
            println!("{name:<28} {:>8.1} ns", nanoseconds(*prepare));
        }
    }
    ExitCode::SUCCESS
}

fn nanoseconds(prepare: Prepare) -> f64 {
    let mut work = prepare();
    let mut turns = 1_000;
    let mut time = |turns: u64| {
        let start = Instant::now();
        work(black_box(turns));
        start.elapsed()
    };
    while time(turns) < ROUND {
        turns *= 2;
    }
    let best = (0..ROUNDS).map(|_| time(turns)).min().unwrap_or_default();
    best.as_nanos() as f64 / turns as f64
}

fn count_instructions(name: &str) -> Result<f64, String> {
    let [few, many] = COUNTED_TURNS;
    let difference = collected(name, many)?.saturating_sub(collected(name, few)?);
    Ok(difference as f64 / (many - few) as f64)
}

/// Instructions of a whole run with `turns` turns, as callgrind reports them.
fn collected(name: &str, turns: u64) -> Result<u64, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args(["--turns", &turns.to_string(), name])
        .output()
        .map_err(|error| format!("valgrind: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().find_map(|line| line.split_once("Collected :"));
    let number = line.and_then(|(_, number)| number.trim().parse().ok());
    number.ok_or_else(|| format!("valgrind said: {text}"))
}
