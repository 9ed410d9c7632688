//! `account info` and `rtt`: what the connection's own user may know.

use std::time::Instant;

use clap::{Args, Subcommand};
use nuthatch_bench::connect::ConnectArgs;
use nuthatch_bench::units::parse_count;
use serde_json::{Value, json};

use crate::error::CliError;
use crate::session::Session;
use crate::show::{self, Sheet, number};

/// Commands about the account of the connection.
#[derive(Debug, Clone, Subcommand)]
pub enum AccountCommand {
    /// Show the connection's user and account, and what of JetStream is used
    #[command(visible_alias = "nfo")]
    Info,
}

/// Measure round trips to the server
#[derive(Debug, Clone, Args)]
pub struct RttArgs {
    /// How many
    #[arg(default_value = "5", value_parser = parse_count)]
    iterations: usize,
}

/// Runs a command about the account.
pub fn run(command: &AccountCommand, connect: &ConnectArgs) -> Result<(), CliError> {
    match command {
        AccountCommand::Info => info(connect),
    }
}

fn info(connect: &ConnectArgs) -> Result<(), CliError> {
    let mut session = Session::open(connect)?;
    let user = session.client.request("$SYS.REQ.USER.INFO", b"", b"", session.timeout)?;
    let user: Value = serde_json::from_slice(&user.payload)
        .map_err(|err| CliError::Failed(format!("the server's words about us: {err}")))?;
    let user = user["data"].clone();
    let js = session.api("INFO", &Value::Null).ok();
    let json = json!({ "user": user, "jetstream": js });
    session.print(&json, || {
        let info = session.client.info();
        let mut sheet = Sheet::default();
        sheet.heading("Connection");
        sheet.line("Server", format!("{} at {}", info.server_name, session.client.server()));
        sheet.line("Version", info.version.as_str());
        sheet.line("Our address", info.client_ip.as_str());
        sheet.line("User", show::text(&user["user"]));
        sheet.line("Account", show::text(&user["account"]));
        sheet.line_if("Permissions", show::some_text(&user["permissions"]));
        sheet.line("Largest message", show::bytes(info.max_payload as u64));
        match &js {
            Some(js) => jetstream(&mut sheet, js),
            None => sheet.line("JetStream", "not enabled for this account"),
        }
        sheet.render()
    })
}

fn jetstream(sheet: &mut Sheet, js: &Value) {
    sheet.heading("JetStream");
    let limits = &js["limits"];
    let line = |used: &Value, limit: &Value, unit: fn(u64) -> String| {
        format!("{} of {}", unit(number(used)), show::limit(limit, unit))
    };
    sheet.line("Memory", line(&js["memory"], &limits["max_memory"], show::bytes));
    sheet.line("Storage", line(&js["storage"], &limits["max_storage"], show::bytes));
    sheet.line("Streams", line(&js["streams"], &limits["max_streams"], show::count));
    sheet.line("Consumers", line(&js["consumers"], &limits["max_consumers"], show::count));
    sheet.line_if("Domain", show::some_text(&js["domain"]));
    sheet.line("API requests", show::count(number(&js["api"]["total"])));
    sheet.line("API errors", show::count(number(&js["api"]["errors"])));
}

/// Runs `rtt`.
pub fn rtt(args: &RttArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let mut session = Session::open(connect)?;
    let mut times = Vec::with_capacity(args.iterations);
    for _ in 0..args.iterations {
        let started = Instant::now();
        session.client.round_trip(session.timeout)?;
        times.push(started.elapsed().as_secs_f64() * 1000.0);
    }
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    let address = session.client.server().to_string();
    let json = json!({ "server": address, "rtt_ms": mean, "iterations": times });
    session.print(&json, || {
        format!("{address}: {mean:.3} ms, the mean of {} round trips\n", times.len())
    })
}
