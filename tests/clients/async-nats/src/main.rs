//! Runs the shared scenario list (../SCENARIOS.md) with the unmodified async-nats client.

mod core_nats;
mod harness;
mod kv;
mod limits;
mod objects;
mod pull;
mod push;
mod redelivery;
mod streams;

use std::process::ExitCode;

use async_nats::jetstream;
use harness::{Outcome, Scenario, Stop, Verdict, connect, run_one};

const PARTS: &[&[Scenario]] = &[
    core_nats::SCENARIOS,
    streams::SCENARIOS,
    limits::SCENARIOS,
    pull::SCENARIOS,
    redelivery::SCENARIOS,
    push::SCENARIOS,
    kv::SCENARIOS,
    objects::SCENARIOS,
];

/// Makes the stream that stays throughout the run; SCENARIOS.md says why.
async fn create_keeper(url: &str) -> Outcome {
    let js = jetstream::new(connect(url).await?);
    let subjects = vec!["keeper".to_owned()];
    js.create_stream(jetstream::stream::Config {
        name: "KEEPER".to_owned(),
        subjects,
        ..Default::default()
    })
    .await?;
    Ok(())
}

/// The value after a flag of the command line.
fn flag(name: &str) -> Option<String> {
    std::env::args().skip_while(|arg| arg != name).nth(1)
}

#[tokio::main]
async fn main() -> ExitCode {
    let Some(url) = flag("--url") else {
        eprintln!("usage: clients-async-nats --url nats://HOST:PORT [--only id,id]");
        return ExitCode::from(2);
    };
    if let Err(Stop::Fail(err) | Stop::Skip(err)) = create_keeper(&url).await {
        // The scenarios that need JetStream will say the same.
        eprintln!("no stream KEEPER: {err}");
    }
    let only = flag("--only").unwrap_or_default();
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for scenario in PARTS.iter().copied().flatten() {
        if !only.is_empty() && !only.split(',').any(|id| id == scenario.id) {
            continue;
        }
        match run_one(&url, scenario).await {
            Verdict::Passed => passed += 1,
            Verdict::Failed => failed += 1,
            Verdict::Skipped => skipped += 1,
        }
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    if failed == 0 && passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
