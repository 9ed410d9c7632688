//! K01 to K07: the key-value store.

use std::time::Duration;

use async_nats::jetstream::kv::{
    Config, CreateErrorKind, Entry, Operation, Store, UpdateErrorKind, Watch,
};
use futures_util::TryStreamExt;

use crate::harness::{Ctx, Outcome, body, check, equal, expect_err, next, until};
use crate::scenarios;

scenarios! {
    "K01" => put_get,
    "K02" => create_update,
    "K03" => watch,
    "K04" => history,
    "K05" => keys_and_purge,
    "K06" => ttl,
    "K07" => status,
}

async fn bucket(c: &mut Ctx, config: Config) -> Outcome<Store> {
    c.owns(&format!("KV_{}", c.id));
    Ok(c.js.create_key_value(Config { bucket: c.id.to_owned(), ..config }).await?)
}

fn deep(history: i64) -> Config {
    Config { history, ..Default::default() }
}

async fn put_get(c: &mut Ctx) -> Outcome {
    let kv = bucket(c, deep(3)).await?;
    equal(kv.put("a.b", body("one")).await?, 1, "revision")?;
    equal(kv.put("a.b", body("two")).await?, 2, "revision")?;
    let entry = kv.entry("a.b").await?;
    let seen = entry.map(|e| (e.key, e.value, e.revision));
    equal(seen, Some(("a.b".to_owned(), body("two"), 2)), "entry")?;
    let old = kv.entry_for_revision("a.b", 1).await?.map(|e| e.value);
    equal(old, Some(body("one")), "old revision")?;
    equal(kv.get("none").await?, None, "missing key")
}

async fn create_update(c: &mut Ctx) -> Outcome {
    let kv = bucket(c, Config::default()).await?;
    equal(kv.create("k", body(1)).await?, 1, "create")?;
    // The client names 10071 by kinds of its own.
    let again = kv.create("k", body(2)).await;
    expect_err(again, "already exists", |e| e.kind() == CreateErrorKind::AlreadyExists)?;
    let wrong = kv.update("k", body(2), 9).await;
    expect_err(wrong, "10071", |e| e.kind() == UpdateErrorKind::WrongLastRevision)?;
    equal(kv.update("k", body(2), 1).await?, 2, "update")?;
    kv.delete("k").await?;
    equal(kv.get("k").await?, None, "deleted key")?;
    equal(kv.create("k", body(3)).await?, 4, "create after the delete")?;
    equal(kv.get("k").await?, Some(body(3)), "value")
}

type Update = (String, String, Operation);

/// The next updates; whether the last of them is marked as the end of the initial values.
async fn next_updates(watch: &mut Watch, count: usize) -> Outcome<(Vec<Update>, bool)> {
    let (mut got, mut current) = (Vec::new(), false);
    for _ in 0..count {
        let entry: Entry = next(watch).await??;
        current = entry.seen_current;
        got.push((entry.key, String::from_utf8(entry.value.to_vec())?, entry.operation));
    }
    Ok((got, current))
}

fn put(key: &str, value: &str) -> Update {
    (key.to_owned(), value.to_owned(), Operation::Put)
}

async fn watch(c: &mut Ctx) -> Outcome {
    let kv = bucket(c, Config::default()).await?;
    let want: Vec<Update> = ["a.1", "a.2", "b"].iter().map(|k| put(k, k)).collect();
    for (key, value, _) in &want {
        kv.put(key, body(value)).await?;
    }
    let mut all = kv.watch_with_history(">").await?;
    equal(
        next_updates(&mut all, 3).await?,
        (want.clone(), true),
        "initial values and their end mark",
    )?;
    kv.put("c", body("new")).await?;
    kv.delete("b").await?;
    let changes = vec![put("c", "new"), ("b".to_owned(), String::new(), Operation::Delete)];
    equal(next_updates(&mut all, 2).await?.0, changes, "updates")?;
    let mut some = kv.watch_with_history("a.*").await?;
    equal(next_updates(&mut some, 2).await?, (want[..2].to_vec(), true), "wildcard")
}

async fn history(c: &mut Ctx) -> Outcome {
    let kv = bucket(c, deep(5)).await?;
    for i in 0..7 {
        kv.put("k", body(i)).await?;
    }
    kv.delete("k").await?;
    let entries: Vec<Entry> = kv.history("k").await?.try_collect().await?;
    let values: Vec<_> = entries.iter().map(|e| e.value.clone()).collect();
    equal(values, ["3", "4", "5", "6", ""], "history")?;
    equal(entries.last().map(|e| e.operation), Some(Operation::Delete), "the last entry")
}

async fn sorted_keys(kv: &Store) -> Outcome<Vec<String>> {
    let mut keys: Vec<String> = kv.keys().await?.try_collect().await?;
    keys.sort();
    Ok(keys)
}

async fn keys_and_purge(c: &mut Ctx) -> Outcome {
    let kv = bucket(c, deep(5)).await?;
    for key in ["a", "b", "c", "a"] {
        kv.put(key, body("x")).await?;
    }
    equal(sorted_keys(&kv).await?, ["a", "b", "c"], "keys")?;
    kv.delete("b").await?;
    kv.purge("a").await?;
    equal(sorted_keys(&kv).await?, ["c"], "keys after delete and purge")?;
    let entries: Vec<Entry> = kv.history("a").await?.try_collect().await?;
    let operations: Vec<_> = entries.iter().map(|e| e.operation).collect();
    equal(operations, [Operation::Purge], "history of the purged key")?;
    equal(kv.get("a").await?, None, "purged key")
}

async fn ttl(c: &mut Ctx) -> Outcome {
    let kv = bucket(c, Config { max_age: Duration::from_secs(3), ..Default::default() }).await?;
    kv.put("k", body("x")).await?;
    equal(kv.get("k").await?, Some(body("x")), "value")?;
    until("the value expires", async || Ok(kv.get("k").await?.is_none())).await
}

async fn status(c: &mut Ctx) -> Outcome {
    // async-nats has no call that lists bucket names.
    let kv = bucket(c, deep(4)).await?;
    for i in 0..3 {
        kv.put(format!("k{i}"), body("x")).await?;
    }
    // The client's status tells what it saw when the bucket was opened.
    let status = c.js.get_key_value("K07").await?.status().await?;
    equal((status.bucket(), status.values(), status.history()), ("K07", 3, 4), "status")?;
    check(c.js.delete_key_value("K07").await?.success, "delete")?;
    expect_err(c.js.get_key_value("K07").await, "no bucket", |e| e.to_string().contains("10059"))
}
