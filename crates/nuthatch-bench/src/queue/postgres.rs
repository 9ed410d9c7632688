//! A PostgreSQL table as a queue, as in seed 004: receiving moves `next_delivery` of rows that
//! nobody else has locked, acknowledging deletes them. The two statements of the seed's receive
//! are one here, which saves two round trips and changes nothing else.

use std::time::Duration;

use postgres::{Client, Config, NoTls, Statement};

use super::{Guarantee, Queue, QueueError, QueueSpec, Receiver, Sender, Source, failed};

const DRIVER: &str = "postgres";

/// A received row that is not acknowledged comes back after this many seconds.
const VISIBILITY_S: u32 = 60;

/// A receiver that finds nothing asks again after this long.
const POLL: Duration = Duration::from_millis(5);

/// The statements are planned while the table is empty and without statistics; without this the
/// planner keeps reading and sorting the whole table when it has grown.
const RECEIVER_SETTINGS: &str = "SET enable_seqscan = off; SET enable_sort = off";

/// A table.
pub struct PostgresQueue {
    config: Config,
    table: String,
}

impl PostgresQueue {
    /// `url` is `postgres://USER@HOST:PORT/DATABASE`. There are no settings.
    ///
    /// # Errors
    /// When the address makes no sense, or the name is no plain table name.
    pub fn new(spec: &QueueSpec) -> Result<Self, QueueError> {
        let config: Config = spec.url.parse().map_err(failed(DRIVER, "read the address"))?;
        if spec.name.is_empty() || !spec.name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        {
            let reason = format!("{:?} is no plain table name", spec.name);
            return Err(QueueError { driver: DRIVER, action: "name the table", reason });
        }
        Ok(Self { config, table: format!("q_{}", spec.name) })
    }

    fn connect(&self) -> Result<Client, QueueError> {
        self.config.connect(NoTls).map_err(words("connect"))
    }
}

/// The crate's own text leaves out what the server said.
fn words(action: &'static str) -> impl Fn(postgres::Error) -> QueueError {
    move |err| {
        let reason = err.as_db_error().map_or_else(|| err.to_string(), ToString::to_string);
        QueueError { driver: DRIVER, action, reason }
    }
}

fn show(client: &mut Client, name: &str) -> Result<String, QueueError> {
    let row = client.query_one(&format!("SHOW {name}"), &[]).map_err(words("ask for a setting"))?;
    row.try_get(0).map_err(words("ask for a setting"))
}

impl Queue for PostgresQueue {
    fn guarantee(&self) -> Result<Guarantee, QueueError> {
        let mut client = self.connect()?;
        let commit = show(&mut client, "synchronous_commit")?;
        let standbys = show(&mut client, "synchronous_standby_names")?;
        let fsync = match (show(&mut client, "fsync")?.as_str(), commit.as_str()) {
            ("on", "off") => "after the answer (synchronous_commit off)".to_owned(),
            ("on", _) => format!("before the answer (fsync on, synchronous_commit {commit})"),
            _ => "no (fsync off)".to_owned(),
        };
        let replicated = match standbys.as_str() {
            "" => "no".to_owned(),
            names => format!("to {names}"),
        };
        Ok(Guarantee { replicated, fsync, source: Source::Asked })
    }

    fn prepare(&self) -> Result<(), QueueError> {
        let table = &self.table;
        let text = format!(
            "DROP TABLE IF EXISTS {table}; \
             CREATE TABLE {table} (id BIGSERIAL PRIMARY KEY, content BYTEA NOT NULL, \
             next_delivery TIMESTAMPTZ NOT NULL DEFAULT now()); \
             CREATE INDEX {table}_next ON {table} (next_delivery, id)"
        );
        self.connect()?.batch_execute(&text).map_err(words("create the table"))
    }

    fn sender(&self, _index: usize) -> Result<Box<dyn Sender>, QueueError> {
        let mut client = self.connect()?;
        let text = format!("INSERT INTO {} (content) SELECT unnest($1::bytea[])", self.table);
        let insert = client.prepare(&text).map_err(words("prepare the insert"))?;
        Ok(Box::new(PostgresSender { client, insert }))
    }

    fn receiver(&self, _index: usize) -> Result<Box<dyn Receiver>, QueueError> {
        let mut client = self.connect()?;
        client.batch_execute(RECEIVER_SETTINGS).map_err(words("set planner options"))?;
        let table = &self.table;
        let take = format!(
            "UPDATE {table} SET next_delivery = now() + interval '{VISIBILITY_S} seconds' \
             WHERE id IN (SELECT id FROM {table} WHERE next_delivery <= now() \
             ORDER BY next_delivery, id FOR UPDATE SKIP LOCKED LIMIT $1) RETURNING id, content"
        );
        let take = client.prepare(&take).map_err(words("prepare the receive"))?;
        let remove = format!("DELETE FROM {table} WHERE id = ANY($1)");
        let remove = client.prepare(&remove).map_err(words("prepare the delete"))?;
        Ok(Box::new(PostgresReceiver { client, take, remove, to_ack: Vec::new() }))
    }
}

struct PostgresSender {
    client: Client,
    insert: Statement,
}

impl Sender for PostgresSender {
    fn send(&mut self, batch: &[&[u8]]) -> Result<(), QueueError> {
        self.client.execute(&self.insert, &[&batch]).map_err(words("insert"))?;
        Ok(())
    }
}

struct PostgresReceiver {
    client: Client,
    take: Statement,
    remove: Statement,
    /// Rows received and not deleted.
    to_ack: Vec<i64>,
}

impl Receiver for PostgresReceiver {
    fn receive(
        &mut self,
        max: usize,
        wait: Duration,
        each: &mut dyn FnMut(&[u8]),
    ) -> Result<usize, QueueError> {
        let limit = i64::try_from(max).unwrap_or(i64::MAX);
        let deadline = std::time::Instant::now() + wait;
        loop {
            let mut rows =
                self.client.query(&self.take, &[&limit]).map_err(words("select and lock"))?;
            // RETURNING promises no order.
            rows.sort_by_key(|row| row.get::<_, i64>(0));
            for row in &rows {
                self.to_ack.push(row.get(0));
                each(row.get(1));
            }
            if !rows.is_empty() || std::time::Instant::now() >= deadline {
                return Ok(rows.len());
            }
            std::thread::sleep(POLL);
        }
    }

    fn ack(&mut self) -> Result<(), QueueError> {
        if self.to_ack.is_empty() {
            return Ok(());
        }
        self.client.execute(&self.remove, &[&self.to_ack]).map_err(words("delete"))?;
        self.to_ack.clear();
        Ok(())
    }
}
