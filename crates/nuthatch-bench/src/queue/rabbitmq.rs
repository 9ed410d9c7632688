//! A RabbitMQ quorum queue with publisher confirms, with the crate `lapin`. As in seed 004 at most
//! 100 messages are on their way to a receiver.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions,
    ConfirmSelectOptions, QueueDeclareOptions, QueueDeleteOptions,
};

use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{BasicProperties, Channel, Confirmation, Connection, ConnectionProperties, Consumer};
use tokio::runtime::{Builder, Runtime};

use super::{Guarantee, Queue, QueueError, QueueSpec, Receiver, Sender, Source, failed};

const DRIVER: &str = "rabbitmq";

/// Unacknowledged messages per receiver.
const PREFETCH: u16 = 100;

/// AMQP's mark of a message that goes to disk.
const PERSISTENT: u8 = 2;

/// How long a broken connection may take to say so.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A quorum queue.
pub struct RabbitQueue {
    url: String,
    queue: ShortString,
    /// Runs the connections of all senders and receivers of this process.
    runtime: Arc<Runtime>,
}

impl RabbitQueue {
    /// `url` is `amqp://USER:PASSWORD@HOST:PORT/%2f`. There are no settings.
    ///
    /// # Errors
    /// When no runtime can be started.
    pub fn new(spec: &QueueSpec) -> Result<Self, QueueError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(failed(DRIVER, "start a runtime"))?;
        let queue = spec.name.as_str().into();
        Ok(Self { url: spec.url.clone(), queue, runtime: Arc::new(runtime) })
    }

    async fn channel(&self) -> lapin::Result<(Connection, Channel)> {
        let connection = Connection::connect(&self.url, ConnectionProperties::default()).await?;
        let channel = connection.create_channel().await?;
        Ok((connection, channel))
    }

    async fn declare(&self) -> lapin::Result<()> {
        let (_connection, channel) = self.channel().await?;
        channel.queue_delete(self.queue.clone(), QueueDeleteOptions::default()).await?;
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
        let options = QueueDeclareOptions { durable: true, ..Default::default() };
        channel.queue_declare(self.queue.clone(), options, arguments).await?;
        Ok(())
    }
}

impl Queue for RabbitQueue {
    fn guarantee(&self) -> Result<Guarantee, QueueError> {
        Ok(Guarantee {
            replicated: "majority of the queue's members (one on a single node)".into(),
            fsync: "before the confirm (Raft log of a quorum queue)".into(),
            source: Source::Configured,
        })
    }

    fn prepare(&self) -> Result<(), QueueError> {
        self.runtime.block_on(self.declare()).map_err(failed(DRIVER, "declare the queue"))
    }

    fn sender(&self, _index: usize) -> Result<Box<dyn Sender>, QueueError> {
        let open = async {
            let (connection, channel) = self.channel().await?;
            channel.confirm_select(ConfirmSelectOptions::default()).await?;
            lapin::Result::Ok((connection, channel))
        };
        let (connection, channel) =
            self.runtime.block_on(open).map_err(failed(DRIVER, "open a channel"))?;
        let (runtime, queue) = (self.runtime.clone(), self.queue.clone());
        Ok(Box::new(RabbitSender { _connection: connection, channel, queue, runtime }))
    }

    fn receiver(&self, index: usize) -> Result<Box<dyn Receiver>, QueueError> {
        let open = async {
            let (connection, channel) = self.channel().await?;
            channel.basic_qos(PREFETCH, BasicQosOptions::default()).await?;
            let tag = format!("c{index}");
            let consumer = channel
                .basic_consume(
                    self.queue.clone(),
                    tag.as_str().into(),
                    BasicConsumeOptions::default(),
                    FieldTable::default(),
                )
                .await?;
            lapin::Result::Ok((connection, channel, consumer))
        };
        let (connection, channel, consumer) =
            self.runtime.block_on(open).map_err(failed(DRIVER, "consume"))?;
        let runtime = self.runtime.clone();
        let last_tag = None;
        Ok(Box::new(RabbitReceiver {
            _connection: connection,
            channel,
            consumer,
            runtime,
            last_tag,
        }))
    }
}

struct RabbitSender {
    /// Kept because the channel ends with it.
    _connection: Connection,
    channel: Channel,
    queue: ShortString,
    runtime: Arc<Runtime>,
}

impl RabbitSender {
    async fn publish(&self, batch: &[&[u8]]) -> Result<(), String> {
        let properties = BasicProperties::default().with_delivery_mode(PERSISTENT);
        let mut confirms = Vec::with_capacity(batch.len());
        for body in batch {
            let options = BasicPublishOptions::default();
            let confirm = self
                .channel
                .basic_publish("".into(), self.queue.clone(), options, body, properties.clone())
                .await
                .map_err(|err| err.to_string())?;
            confirms.push(confirm);
        }
        for confirm in confirms {
            match confirm.await.map_err(|err| err.to_string())? {
                Confirmation::Ack(None) => {}
                other => return Err(format!("not confirmed: {other:?}")),
            }
        }
        Ok(())
    }
}

impl Sender for RabbitSender {
    fn send(&mut self, batch: &[&[u8]]) -> Result<(), QueueError> {
        let publish = async { tokio::time::timeout(TIMEOUT, self.publish(batch)).await };
        let result = self.runtime.block_on(publish);
        let result = result.unwrap_or_else(|_| Err(format!("no confirm within {TIMEOUT:?}")));
        result.map_err(failed(DRIVER, "publish"))
    }
}

struct RabbitReceiver {
    /// Kept because the channel ends with it.
    _connection: Connection,
    channel: Channel,
    consumer: Consumer,
    runtime: Arc<Runtime>,
    /// Tag of the last unacknowledged message; an ack covers all before it.
    last_tag: Option<u64>,
}

impl Receiver for RabbitReceiver {
    fn receive(
        &mut self,
        max: usize,
        wait: Duration,
        each: &mut dyn FnMut(&[u8]),
    ) -> Result<usize, QueueError> {
        let (consumer, last_tag) = (&mut self.consumer, &mut self.last_tag);
        let receive = async {
            let mut count = 0;
            let mut left = wait;
            while count < max {
                // After the first message only what has arrived already is taken.
                let Ok(delivery) = tokio::time::timeout(left, consumer.next()).await else { break };
                let delivery = delivery.ok_or("the consumer was cancelled".to_owned())?;
                let delivery = delivery.map_err(|err| err.to_string())?;
                each(&delivery.data);
                *last_tag = Some(delivery.delivery_tag);
                count += 1;
                left = Duration::ZERO;
            }
            Ok::<_, String>(count)
        };
        self.runtime.block_on(receive).map_err(failed(DRIVER, "receive"))
    }

    fn ack(&mut self) -> Result<(), QueueError> {
        let Some(tag) = self.last_tag.take() else { return Ok(()) };
        let options = BasicAckOptions { multiple: true };
        self.runtime
            .block_on(self.channel.basic_ack(tag, options))
            .map(drop)
            .map_err(failed(DRIVER, "acknowledge"))
    }
}
