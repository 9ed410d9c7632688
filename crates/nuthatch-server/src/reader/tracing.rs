//! Publishes that ask for a trace (ADR-41): whether they get one, and their way. It is that of other
//! publishes; what is only traced goes to no client and no stream.

use super::Turn;
use super::publish::{Handled, is_gateway_subject};
use crate::jetstream_port::StreamRoute;
use crate::meaning::{Meaning, Place, Request, meaning};
use crate::msg_trace::{Asked, Party, PartyKind, Trace, Traced, may_ask};
use crate::options::is_trace_dest;
use crate::route::ForeignStream;
use crate::system_port::own_document;
use crate::traced_publish::{self, Stored, untraced};
use nuthatch_protocol::wire::Publish;
use nuthatch_streams::AccountId;

/// What becomes of a publish that asks for a trace.
enum Begun {
    /// It is traced.
    Traced(Trace),
    /// It is a publish like any other.
    Plain,
    /// So it is, and goes on with a header that says that it is not traced.
    Untraced,
    /// It is not handled at all.
    Dropped,
}

impl Turn<'_> {
    /// True if a publish with headers may ask for a trace.
    #[inline]
    pub(super) fn may_ask_for_trace(&self, publish: &Publish<'_>) -> bool {
        may_ask(publish.headers(), self.reader.session.account.msg_trace.is_set())
    }

    /// A client's publish that may ask for a trace.
    #[cold]
    pub(super) fn publish_traced(&mut self, publish: &Publish<'_>) {
        self.with_trace(publish, |turn, publish| turn.publish_to_any(publish));
    }

    /// Begins the trace of a publish, if it is to have one, and handles it by `handle`.
    #[cold]
    pub(super) fn with_trace(
        &mut self,
        publish: &Publish<'_>,
        handle: impl FnOnce(&mut Self, &Publish<'_>),
    ) {
        match self.begin_trace(publish) {
            Begun::Traced(trace) => {
                self.trace = Some(trace);
                handle(self, publish);
                self.trace = None;
            }
            Begun::Plain => handle(self, publish),
            Begun::Untraced => {
                let mut message = untraced(publish.headers());
                let header_len = message.len();
                message.extend_from_slice(publish.payload());
                // Its parts are not in the read buffer any more.
                self.remapped = true;
                handle(self, &Publish { message: &message, header_len, ..*publish });
                self.remapped = false;
            }
            Begun::Dropped => {}
        }
    }

    fn begin_trace(&mut self, publish: &Publish<'_>) -> Begun {
        let Some(asked) = Asked::read(publish.headers()) else { return Begun::Plain };
        let (from, account) = (self.party(), self.reader.session.account.clone());
        let or_plain = if asked.only { Begun::Dropped } else { Begun::Plain };
        if let Some(origin) = &asked.origin {
            self.tell_of_traces(format_args!(
                "Message tracing disabled because of header \"Nats-Trace-Origin-Account\" with value={origin}"
            ));
            return if asked.only { Begun::Dropped } else { Begun::Untraced };
        }
        let dest = if asked.dest.is_empty() {
            let target = account.msg_trace.choose(&mut self.scratch.rng);
            match target {
                None => return Begun::Plain,
                // Only where it comes from is it chosen.
                Some((_, false)) if from.kind == PartyKind::Client => return Begun::Untraced,
                Some((dest, _)) => dest,
            }
        } else {
            asked.dest.clone()
        };
        if !std::str::from_utf8(&dest).is_ok_and(is_trace_dest) {
            let dest = crate::quote::go_quote(&dest);
            self.tell_of_traces(format_args!(
                "Destination {dest} is not valid, won't be able to trace events"
            ));
            return or_plain;
        }
        if !self.may_trace_to(&dest) {
            self.publish_violation(&dest);
            return Begun::Dropped;
        }
        let message = Traced {
            from,
            account: account.id,
            subject: publish.subject,
            size: publish.message.len(),
        };
        Begun::Traced(Trace::begin(&self.reader.server.accounts.traces, asked, &dest, message))
    }

    /// Logs why there is no trace, once for a connection: its messages would fill the log.
    fn tell_of_traces(&mut self, why: std::fmt::Arguments<'_>) {
        if !std::mem::replace(&mut self.reader.told_of_traces, true) {
            let (log, conn) = (&self.reader.server.log, &self.reader.conn);
            log.error(format_args!("{conn} - {why}"));
        }
    }

    /// The other side of this connection.
    fn party(&self) -> Party {
        let (conn, session) = (&self.reader.conn, &self.reader.session);
        let (kind, name) = match conn.link() {
            None => (PartyKind::Client, session.name.clone()),
            Some(link) if link.node.is_some() => (PartyKind::Node, link.remote_name.clone()),
            Some(link) => (PartyKind::Leaf, link.remote_name.clone()),
        };
        Party { kind, id: conn.id, name, account: session.account.name.clone() }
    }

    /// Traces go where their sender may publish.
    fn may_trace_to(&self, dest: &[u8]) -> bool {
        if is_gateway_subject(dest) {
            return false;
        }
        let reader = &self.reader;
        let is_system = reader.session.account.id == reader.server.accounts.system().id;
        if dest.starts_with(b"$NRG.") && !is_system {
            return false;
        }
        match reader.conn.link() {
            Some(link) => link.node.is_some() || link.rights.may_take(dest),
            None => reader.session.rights.as_ref().is_none_or(|rights| rights.may_publish(dest)),
        }
    }

    /// A mapping gave the publish another subject.
    #[inline]
    pub(super) fn note_mapped(&self, to: &[u8]) {
        if let Some(trace) = &self.trace {
            trace.mapped(to);
        }
    }

    /// The publish is refused.
    pub(super) fn note_refused(&self, why: &str) {
        if let Some(trace) = &self.trace {
            trace.refused(why);
        }
    }

    /// Routes a publish that is traced.
    #[cold]
    pub(super) fn route_traced(&mut self, publish: &Publish<'_>) {
        let only = self.trace.as_ref().is_some_and(|trace| trace.only);
        // What is only traced waits for nothing.
        if !only && self.waits(publish) {
            return;
        }
        let taken = match publish.subject.first() {
            Some(b'$') => self.reserved_traced(publish, only),
            _ => Handled::No,
        };
        let is_over =
            taken == Handled::ByServer && !self.reader.session.account.interest.sees_reserved();
        if !is_over {
            let was_remapped = std::mem::replace(&mut self.remapped, true);
            self.route(publish, taken);
            self.remapped = was_remapped;
        }
    }

    /// Subjects of JetStream and of the system: a call of the API, and a request to the system, is one
    /// to a service of the system account, into which traces do not go.
    pub(super) fn reserved_traced(&mut self, publish: &Publish<'_>, only: bool) -> Handled {
        let subject = publish.subject;
        let (jetstream, account) = (self.reader.server.jetstream(), &self.reader.session.account);
        let mut is_service = subject == b"$SYS.REQ.USER.INFO" || own_document(subject).is_some();
        let mut is_reserved = is_service;
        if subject.starts_with(b"$JS.") && jetstream.enabled(account.id) {
            let place = Place::new(jetstream.domain(), &account.name);
            match meaning(&place, subject).and_then(Meaning::request) {
                Some(Request::Bucket(subject)) => return self.bucket_traced(publish, subject),
                Some(Request::Call(_)) => (is_service, is_reserved) = (true, true),
                Some(_) => is_reserved = true,
                None => {}
            }
        }
        if is_service && let Some(trace) = &self.trace {
            trace.carried(&self.reader.server.accounts.system().name, subject, subject);
        }
        if only && is_reserved {
            // Nobody takes a request to a service that must not be traced.
            return if is_service { Handled::No } else { Handled::ByServer };
        }
        let trace = self.trace.take();
        let handled = self.reserved(publish);
        self.trace = trace;
        handled
    }

    fn bucket_traced(&mut self, publish: &Publish<'_>, subject: &[u8]) -> Handled {
        let was_remapped = std::mem::replace(&mut self.remapped, true);
        let handled = self.publish_bucket(publish, subject);
        self.remapped = was_remapped;
        handled
    }

    /// To a stream of this account.
    #[cold]
    pub(super) fn publish_to_stream_traced(
        &mut self,
        publish: &Publish<'_>,
        account: AccountId,
        route: StreamRoute,
    ) {
        let Some(trace) = &self.trace else { return };
        let stored = Stored {
            account,
            route,
            subject: publish.subject,
            reply: publish.reply.unwrap_or_default(),
            headers: publish.headers(),
            body: publish.payload(),
        };
        let (jetstream, outlet) = (self.reader.server.jetstream(), self.reader.conn.outlet());
        if let Some(batch) = traced_publish::batch(trace, jetstream, outlet, &stored) {
            // What came before must be ahead of it.
            self.hand_over();
            self.reader.submit(route.log, batch);
        }
    }

    /// To a stream of another account, which imports it.
    #[cold]
    pub(super) fn publish_foreign_traced(&mut self, publish: &Publish<'_>, stream: &ForeignStream) {
        let account = self.reader.server.accounts.get(stream.account);
        if let (Some(trace), Some(account)) = (&self.trace, account) {
            trace.exported(&account.name, &stream.subject);
        }
        if stream.allow_trace {
            return self.publish_to_stream_traced(publish, stream.account, stream.route);
        }
        let trace = self.trace.take();
        if trace.as_ref().is_some_and(|trace| !trace.only) {
            self.publish_copied(publish, stream.route);
        }
        self.trace = trace;
    }
}
