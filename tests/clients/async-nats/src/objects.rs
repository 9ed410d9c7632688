//! O01 to O05: the object store.

use async_nats::jetstream::object_store::{Config, GetErrorKind, ObjectStore};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE;
use futures_util::TryStreamExt;
use sha2::{Digest, Sha256};
use tokio::io::AsyncReadExt;

use crate::core_nats::random;
use crate::harness::{Ctx, Outcome, check, equal, expect_err, next, until};
use crate::scenarios;
use crate::streams::state;

scenarios! {
    "O01" => put_get,
    "O02" [360] => fifty_megabytes,
    "O03" => overwrite,
    "O04" => watch,
    "O05" => status,
}

async fn store(c: &mut Ctx) -> Outcome<ObjectStore> {
    c.owns(&format!("OBJ_{}", c.id));
    Ok(c.js.create_object_store(Config { bucket: c.id.to_owned(), ..Default::default() }).await?)
}

fn digest(data: &[u8]) -> String {
    format!("SHA-256={}", URL_SAFE.encode(Sha256::digest(data)))
}

async fn read(store: &ObjectStore, name: &str) -> Outcome<Vec<u8>> {
    let mut data = Vec::new();
    store.get(name).await?.read_to_end(&mut data).await?;
    Ok(data)
}

async fn put_get(c: &mut Ctx) -> Outcome {
    let obj = store(c).await?;
    let data = random(1, 300_000);
    let put = obj.put("an object", &mut data.as_slice()).await?;
    equal((put.name.as_str(), put.size, put.chunks), ("an object", 300_000, 3), "put")?;
    let info = obj.info("an object").await?;
    equal((info.size, info.chunks, info.digest), (300_000, 3, Some(digest(&data))), "info")?;
    check(read(&obj, "an object").await? == data, "content differs")?;
    let list: Vec<_> = obj.list().await?.try_collect().await?;
    equal(list.iter().map(|i| i.name.as_str()).collect::<Vec<_>>(), ["an object"], "list")?;
    obj.delete("an object").await?;
    expect_err(obj.get("an object").await, "not found", |e| e.kind() == GetErrorKind::NotFound)
}

async fn fifty_megabytes(c: &mut Ctx) -> Outcome {
    let obj = store(c).await?;
    let data = random(2, 50 * 1024 * 1024);
    let put = obj.put("big", &mut data.as_slice()).await?;
    equal((put.size, put.digest), (data.len(), Some(digest(&data))), "put")?;
    let got = read(&obj, "big").await?;
    equal(got.len(), data.len(), "size")?;
    equal(Sha256::digest(&got), Sha256::digest(&data), "SHA-256")
}

async fn overwrite(c: &mut Ctx) -> Outcome {
    let obj = store(c).await?;
    obj.put("o", &mut vec![0; 500_000].as_slice()).await?;
    obj.put("o", &mut b"second".as_slice()).await?;
    equal(read(&obj, "o").await?, b"second", "content")?;
    let stream = c.js.get_stream("OBJ_O03").await?;
    until("chunks of the first object are purged", async || Ok(state(&stream).await?.messages == 2))
        .await
}

async fn watch(c: &mut Ctx) -> Outcome {
    let obj = store(c).await?;
    let mut watch = obj.watch().await?;
    obj.put("one", &mut b"1".as_slice()).await?;
    obj.put("two", &mut b"2".as_slice()).await?;
    obj.delete("one").await?;
    for want in [("one", false), ("two", false), ("one", true)] {
        let info = next(&mut watch).await??;
        equal((info.name.as_str(), info.deleted), want, "event")?;
    }
    Ok(())
}

async fn status(c: &mut Ctx) -> Outcome {
    // async-nats has no status call for object stores; the stream behind it tells the size.
    let obj = store(c).await?;
    obj.put("o", &mut vec![0; 1_000].as_slice()).await?;
    let bytes = state(&c.js.get_stream("OBJ_O05").await?).await?.bytes;
    check(bytes > 1_000, format!("bytes {bytes}"))?;
    c.js.delete_object_store("O05").await?;
    expect_err(c.js.get_object_store("O05").await, "no bucket", |e| e.to_string().contains("10059"))
}
