//! What the console keeps an hour of.

use std::sync::atomic::Ordering;

use nuthatch_console::{AccountSample, FreeSpace, Sample};
use nuthatch_server::jetstream_port::JszQuery;
use nuthatch_server::server::Server;

/// Accounts that are looked at.
const ACCOUNTS_MAX: usize = 256;

/// The server now.
pub async fn take(server: &Server) -> Sample {
    let query = JszQuery { limit: ACCOUNTS_MAX, ..JszQuery::default() };
    let (stored, _) = server.jetstream().view().accounts(query).await;
    let mut traffic = server.connections.traffic_by_account();
    for (account, more) in server.leafs.connections.traffic_by_account() {
        traffic.entry(account).or_default().add(&more);
    }
    let accounts = server.accounts.all().into_iter().take(ACCOUNTS_MAX).map(|account| {
        let found = traffic.get(&account.id).copied().unwrap_or_default();
        let totals = stored.iter().find(|stored| stored.name == account.name);
        AccountSample {
            name: account.name.clone(),
            in_messages: found.received.messages,
            out_messages: found.sent.messages,
            in_bytes: found.received.bytes,
            out_bytes: found.sent.bytes,
            connections: account.connections.load(Ordering::Relaxed) as u64,
            stored_bytes: totals
                .map_or(0, |stored| stored.totals.store_bytes + stored.totals.memory_bytes),
        }
    });
    Sample { accounts: accounts.collect(), space: space(server) }
}

/// What is free in the directories of logs; one that does not tell is left out.
fn space(server: &Server) -> Vec<FreeSpace> {
    let places: Vec<(String, String)> = {
        let locations = server.logs.locations();
        let local = locations.iter().filter(|log| log.mode != "object");
        local.map(|log| (log.name.clone(), log.home.clone())).collect()
    };
    let free = |(log, home): (String, String)| {
        let told = rustix::fs::statvfs(home.as_str()).ok()?;
        Some(FreeSpace {
            log,
            free_bytes: told.f_bavail.saturating_mul(told.f_frsize),
            total_bytes: told.f_blocks.saturating_mul(told.f_frsize),
        })
    };
    places.into_iter().filter_map(free).collect()
}
