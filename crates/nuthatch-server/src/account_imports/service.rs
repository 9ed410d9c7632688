//! An imported service: carries requests into the exporting account.

use super::inbound::{Inbound, route_inbound};
use super::{
    HOPS_MAX, Import, ImportHost, ResponseKind, ServiceExport, publish_latency, relay, request_info,
};
use crate::account::Account;
use crate::account::responses::ResponseTerms;
use crate::egress::{DeliveryContext, Outgoing};
use crate::jetstream_port::JetStreamPort;
use crate::latency::Sampler;
use crate::mapping::Mapping;
use crate::meaning::{Place, effective_subject};
use crate::msg_trace::DEST;
use crate::subscription::{Receiver, Subscription};
use crate::traced_publish::untraced;
use nuthatch_protocol::headers;
use nuthatch_protocol::subject::is_subset;
use nuthatch_protocol::transform::Transform;
use std::borrow::Cow;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// An imported service.
pub(super) struct ServiceImport {
    host: Weak<dyn ImportHost>,
    importer: Weak<Account>,
    exporter: Weak<Account>,
    /// What the exporting account exports.
    export: Box<[u8]>,
    /// From a subject here to the one there; `None`: they are the same.
    outward: Option<Transform>,
    share: bool,
    kind: ResponseKind,
    threshold: Duration,
    latency: Option<Arc<Sampler>>,
    /// Traces follow requests there.
    allow_trace: bool,
}

impl ServiceImport {
    /// `None` if the subjects do not fit each other, which the check of the options excludes.
    pub(super) fn new(
        import: &Import,
        (export, service): (&str, &ServiceExport),
        importer: &Arc<Account>,
        exporter: &Arc<Account>,
        host: &Arc<dyn ImportHost>,
    ) -> Option<Self> {
        Some(Self {
            host: Arc::downgrade(host),
            importer: Arc::downgrade(importer),
            exporter: Arc::downgrade(exporter),
            export: export.as_bytes().into(),
            outward: import.outward().ok()?,
            share: import.share,
            kind: service.response,
            threshold: service.threshold,
            latency: service.latency.as_ref().map(|latency| Arc::new(Sampler::new(latency))),
            allow_trace: service.allow_trace,
        })
    }

    /// True if the export covers what takes effect in place of this subject, the domain's prefix
    /// taken off both.
    fn covers(&self, jetstream: &dyn JetStreamPort, exporter: &Account, subject: &[u8]) -> bool {
        if !jetstream.understands(exporter.id) {
            return true;
        }
        let place = Place::new(jetstream.domain(), &exporter.name);
        match effective_subject(&place, subject) {
            Cow::Borrowed(_) => true,
            Cow::Owned(effective) => {
                is_subset(&effective, &self.export)
                    || is_subset(&effective, &effective_subject(&place, &self.export))
            }
        }
    }

    /// The subject there; `None`: there is none, or what it stands for is not exported.
    fn subject(
        &self,
        jetstream: &dyn JetStreamPort,
        routed: &[u8],
        exporter: &Account,
        way: &mut DeliveryContext<'_>,
    ) -> Option<Vec<u8>> {
        let mut subject = Vec::with_capacity(routed.len());
        match &self.outward {
            Some(transform) => transform.apply_matching(routed, 0, &mut subject),
            None => subject.extend_from_slice(routed),
        }
        if !self.covers(jetstream, exporter, &subject) {
            return None;
        }
        let mut mapped = Vec::new();
        match exporter.mappings.apply(&subject, way.rng, &mut mapped) {
            Mapping::Unchanged => Some(subject),
            Mapping::Changed => Some(mapped),
            Mapping::Dropped => None,
        }
    }
}

impl ServiceImport {
    /// Carries a request that is traced. Servers that it reaches there publish what they did on a reply
    /// subject, which leads to where the trace goes.
    #[cold]
    fn carry_traced(
        &self,
        host: &Arc<dyn ImportHost>,
        (importer, exporter): (&Arc<Account>, &Arc<Account>),
        inbound: &Inbound<'_>,
        way: &mut DeliveryContext<'_>,
    ) -> bool {
        let Some(trace) = way.trace.take() else { return false };
        if !self.allow_trace {
            let headers = untraced(inbound.headers);
            let taken =
                route_inbound(&**host, exporter, &Inbound { headers: &headers, ..*inbound }, way);
            way.trace = Some(trace);
            return taken;
        }
        // Each of those servers answers, however many there are.
        let terms = ResponseTerms {
            kind: ResponseKind::Stream,
            threshold: self.threshold,
            measurement: None,
        };
        let dest = relay::open(host, exporter, importer, &trace.dest, terms);
        let mut headers = inbound.headers.to_vec();
        headers::set(&mut headers, DEST, &dest);
        let before = (std::mem::replace(&mut trace.dest, dest), trace.hops());
        way.trace = Some(trace);
        let taken =
            route_inbound(&**host, exporter, &Inbound { headers: &headers, ..*inbound }, way);
        if let Some(trace) = &mut way.trace {
            let dest = std::mem::replace(&mut trace.dest, before.0);
            if trace.hops() == before.1 {
                exporter.imports.responses.give_up(&dest);
            }
        }
        taken
    }
}

impl Receiver for ServiceImport {
    fn receive(
        &self,
        _sub: &Subscription,
        message: &Outgoing<'_>,
        way: &mut DeliveryContext<'_>,
    ) -> bool {
        if way.hops >= HOPS_MAX {
            return false;
        }
        let (Some(importer), Some(exporter)) = (self.importer.upgrade(), self.exporter.upgrade())
        else {
            return false;
        };
        let Some(host) = self.host.upgrade() else { return false };
        let Some(subject) = self.subject(host.jetstream(), message.routed, &exporter, way) else {
            return true;
        };
        if let Some(trace) = &way.trace {
            trace.carried(&exporter.name, message.routed, &subject);
            if trace.only && !self.allow_trace {
                return false;
            }
        }
        let sampled =
            self.latency.as_ref().filter(|sampler| sampler.wants(message.headers, way.rng));
        let mut reply = Vec::new();
        if !message.reply.is_empty() {
            let measurement = sampled.map(|sampler| {
                Box::new(sampler.begin(request_info::of(&*host, &importer, way, self.share)))
            });
            let terms = ResponseTerms { kind: self.kind, threshold: self.threshold, measurement };
            reply = relay::open(&host, &exporter, &importer, message.reply, terms);
        } else if let Some(sampler) = sampled {
            let info = request_info::of(&*host, &importer, way, self.share);
            publish_latency(&*host, &exporter, &sampler.begin(info).unanswerable());
        }
        let headers = request_info::add(message.headers, &*host, &importer, way, self.share);
        let inbound = Inbound {
            subject: &subject,
            routed: &subject,
            reply: &reply,
            headers: &headers,
            body: message.body,
        };
        let by_service = std::mem::replace(&mut way.by_service, true);
        way.hops += 1;
        let only = way.trace.as_ref().is_some_and(|trace| trace.only);
        let taken = match way.trace.is_some() {
            true => self.carry_traced(&host, (&importer, &exporter), &inbound, way),
            false => route_inbound(&*host, &exporter, &inbound, way),
        };
        way.hops -= 1;
        way.by_service = by_service;
        if (!taken || only) && !reply.is_empty() {
            exporter.imports.responses.give_up(&reply);
        }
        taken
    }
}
