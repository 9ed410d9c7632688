//! `server ping`.

use std::time::{Duration, Instant};

use clap::Args;
use nuthatch_client::connect::ConnectArgs;
use nuthatch_client::units::parse_count;
use serde_json::{Value, json};

use super::source::{Answer, Source, SourceArgs};
use crate::error::CliError;
use crate::session::{Session, print};
use crate::show::Table;

/// Options of `server ping`.
#[derive(Debug, Clone, Args)]
pub struct PingArgs {
    /// How many servers have to answer
    expect: Option<usize>,
    /// Round trips to the connected server, when the system account is not ours to ask
    #[arg(long, default_value = "5", value_parser = parse_count)]
    count: usize,
    /// Show the servers' ids
    #[arg(long)]
    id: bool,
    #[command(flatten)]
    source: SourceArgs,
}

/// Runs `server ping`.
pub fn run(args: &PingArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let mut source = Source::open(&args.source, connect)?;
    // The requests of the system account reach all servers; without it there is one to reach.
    let page = if matches!(source, Source::Http { .. }) { "varz" } else { "" };
    match source.ask(page, &Value::Null) {
        Ok(answers) => report(args, &answers, connect.json),
        Err(_) if args.expect.is_none_or(|expect| expect <= 1) => match source {
            Source::System(session) => ping_connected(args, *session),
            Source::Http { .. } => Err(CliError::NotFound("the server does not answer".into())),
        },
        Err(err) => Err(err),
    }
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

fn report(args: &PingArgs, answers: &[Answer], as_json: bool) -> Result<(), CliError> {
    let id = |answer: &Answer| {
        let data = &answer.data;
        crate::show::some_text(&data["server"]["id"])
            .unwrap_or_else(|| crate::show::text(&data["server_id"]))
    };
    let values = answers.iter().map(
        |answer| json!({ "server": answer.server, "id": id(answer), "rtt_ms": ms(answer.after) }),
    );
    print(as_json, &values.collect(), || {
        let mut titles = vec!["Server", "Round trip"];
        titles.extend(args.id.then_some("Id"));
        let mut table = Table::new(&titles);
        for answer in answers {
            let mut row = vec![answer.server.clone(), format!("{:.2} ms", ms(answer.after))];
            row.extend(args.id.then(|| id(answer)));
            table.row(row);
        }
        table.render()
    })?;
    let expect = args.expect.unwrap_or(0);
    if answers.len() < expect {
        let text = format!("{} of {expect} servers answered", answers.len());
        return Err(CliError::Failed(text));
    }
    Ok(())
}

/// Protocol pings to the server at the other end of the connection.
fn ping_connected(args: &PingArgs, mut session: Session) -> Result<(), CliError> {
    let mut times = Vec::with_capacity(args.count);
    for _ in 0..args.count {
        let started = Instant::now();
        session.client.round_trip(session.timeout)?;
        times.push(started.elapsed());
    }
    times.sort_unstable();
    let (least, most) = (times[0], times[times.len() - 1]);
    let mean = times.iter().sum::<Duration>() / times.len() as u32;
    let info = session.client.info().clone();
    let json = json!([{
        "server": info.server_name, "id": info.server_id, "address": session.client.server().to_string(),
        "rtt_ms": ms(mean), "rtt_min_ms": ms(least), "rtt_max_ms": ms(most), "count": times.len(),
    }]);
    session.print(&json, || {
        let id = if args.id { format!(" {}", info.server_id) } else { String::new() };
        format!(
            "{}{id} at {}: {} round trips of {:.2} ms on average, {:.2} to {:.2} ms\n\
             (only the server of this connection: others need a user of the system account)\n",
            info.server_name,
            session.client.server(),
            times.len(),
            ms(mean),
            ms(least),
            ms(most),
        )
    })
}
