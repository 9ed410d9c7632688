//! A broker in this process, without a port: a log is written, closed, opened again and read.
use nuthatch_embed::client::js::{PubAck, api};
use nuthatch_embed::{Broker, Config};
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (dir, wait) = (std::env::args().nth(1).unwrap_or("data".into()), Duration::from_secs(5));
    let config = Config::from_text(&format!("jetstream {{ store_dir: '{dir}' }}"))?;
    let config = config.without_listener();

    let broker = Broker::open(config.clone())?;
    let mut client = broker.connect()?;
    let stream = serde_json::json!({"name": "LOG", "subjects": ["log.>"], "allow_direct": true});
    api(&mut client, "STREAM.CREATE.LOG", &stream, wait)?;
    let ack = client.request("log.first", b"", b"hello", wait)?;
    println!("{:?}", PubAck::parse(&ack.payload, "LOG"));
    broker.close()?;

    let broker = Broker::open(config)?;
    let stored = broker.connect()?.request("$JS.API.DIRECT.GET.LOG.log.first", b"", b"", wait)?;
    println!("stored: {}", String::from_utf8_lossy(&stored.payload));
    Ok(broker.close()?)
}
