"""A Nuthatch broker in this process: a durable log that speaks NATS and JetStream.

    from nuthatch_embed import Broker

    with Broker(store_dir="data", port=-1) as broker:
        client = await nats.connect(broker.url)

Several may be open at the same time. A crash of the process loses nothing that was acknowledged.
"""

from ._broker import Broker, BrokerError, Code, Retention, configuration, version

__all__ = ["Broker", "BrokerError", "Code", "Retention", "configuration", "version"]
