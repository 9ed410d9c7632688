// Package migration has the tests of Milvus's migration to this log: from a natsmq, which is JetStream of nats-server.
package migration
