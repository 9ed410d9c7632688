//! Where the cores of one node put their effects.

use crate::effect::Effect;
use crate::message::{Answer, Envelope, Message, Reply};
use crate::types::{Incarnation, NodeId, RequestId};
use std::collections::VecDeque;

/// The effects of one step. Messages of a node to itself are handled in the same step.
#[derive(Debug)]
pub(crate) struct Out {
    pub(crate) me: NodeId,
    pub(crate) sender: Incarnation,
    pub(crate) effects: Vec<Effect>,
    pub(crate) local: VecDeque<Envelope>,
}

impl Out {
    pub(crate) fn new(me: NodeId, sender: Incarnation) -> Self {
        Self { me, sender, effects: vec![], local: VecDeque::new() }
    }

    pub(crate) fn send(&mut self, to: NodeId, disk: Option<Incarnation>, message: Message) {
        let envelope = Envelope { from: self.me, sender: self.sender, to, disk, message };
        if to == self.me {
            self.local.push_back(envelope);
        } else {
            self.effects.push(Effect::Send(envelope));
        }
    }

    pub(crate) fn reply(&mut self, request: RequestId, answer: Answer) {
        self.effects.push(Effect::Reply(Reply { request, answer }));
    }
}
