//! The steps of a member: what it takes in while its disk is busy, and what it asks for.

use super::check::Violation;
use super::clients::Client;
use super::world::{Happening, Life, Node, World};
use nuthatch_catalog_group::{Effect, Event};
use nuthatch_log::env::MemDisk;
use std::collections::BTreeMap;

/// In every fourth block of four seeds disks take up to 200 ms; other seeds do not draw for it.
pub(super) const fn slowest(seed: u64) -> u64 {
    if (seed / 4).is_multiple_of(4) { 1_000 * (1 + seed % 200) } else { 0 }
}

impl World {
    /// A member handles an event, or what came while its disk was busy, together. As with the thread that drives it, of
    /// the ticks of that time one is left.
    pub(super) fn step(&mut self, at: usize, event: Event) -> Result<(), Violation> {
        let node = &mut self.nodes[at];
        if !node.is_busy {
            return self.step_all(at, vec![event]);
        }
        if event != Event::Tick || !node.waiting.contains(&event) {
            node.waiting.push(event);
        }
        Ok(())
    }

    /// The disk has done what a step asked for: what that has to say goes out, and what came meanwhile is taken in.
    pub(super) fn synced(&mut self, at: usize, process: u64) -> Result<(), Violation> {
        let effects = std::mem::take(&mut self.nodes[at].held);
        effects.into_iter().try_for_each(|effect| self.perform(at, effect))?;
        if self.nodes[at].process != process {
            return Ok(());
        }
        self.nodes[at].is_busy = false;
        match std::mem::take(&mut self.nodes[at].waiting) {
            events if events.is_empty() => Ok(()),
            events => self.step_all(at, events),
        }
    }

    fn step_all(&mut self, at: usize, events: Vec<Event>) -> Result<(), Violation> {
        // Who is taken in behind the tick was not heard when that was.
        let tick = events.iter().position(|event| *event == Event::Tick).unwrap_or(events.len());
        let behind = events[tick..].to_vec();
        events[..tick].iter().for_each(|event| self.note_heard(at, event));
        let node = &mut self.nodes[at];
        let Life::Runs(member) = &mut node.life else { return Ok(()) };
        let before = member.catalog().state().revision;
        let applied = member.position().1;
        let operations = node.disk.operations();
        let says_absent = self.limits.replace_after_ticks.is_some();
        let members = if says_absent { member.members() } else { BTreeMap::new() };
        self.together += u64::from(events.len() > 1);
        let taken = events.into_iter().try_for_each(|event| member.take(event));
        match taken.and_then(|()| member.settle()) {
            Err(error) => self.failed(at, &error),
            Ok(effects) => {
                for effect in &effects {
                    if let Effect::Absent { old, new, ticks } = *effect {
                        self.look_at_absence(at, (old, ticks, new.is_some()), &members)?;
                    }
                }
                behind.iter().for_each(|event| self.note_heard(at, event));
                if self.slowest > 0 && self.nodes[at].disk.operations() != operations {
                    let busy = self.queue.rng.between(1, self.slowest);
                    let node = &mut self.nodes[at];
                    node.is_busy = true;
                    node.held = effects;
                    self.queue.after(busy, Happening::Synced(at, node.process));
                } else {
                    effects.into_iter().try_for_each(|effect| self.perform(at, effect))?;
                }
                self.look_at_roster(at, applied)?;
                self.look_at(at, before)
            }
        }
    }

    fn perform(&mut self, at: usize, effect: Effect) -> Result<(), Violation> {
        match effect {
            Effect::Send(envelope) => {
                let is_at = |node: &Node| matches!(&node.life, Life::Runs(member) if member.id() == envelope.to);
                if let Some(to) = self.nodes.iter().position(is_at) {
                    let bytes = envelope.encode();
                    for after in self.net.send(at, to, &mut self.queue.rng) {
                        self.queue.after(after, Happening::Packet(to, bytes.clone()));
                    }
                }
                Ok(())
            }
            Effect::Answer { number, reply } => {
                let of = |client: &&mut Client| {
                    client.asks.as_ref().is_some_and(|asks| asks.1 == number)
                };
                let Some(client) = self.clients.iter_mut().find(of) else { return Ok(()) };
                let (asked, ..) = client.asks.clone().expect("it asks");
                client.learn(&reply.snapshot);
                self.observer.answered(&asked, &reply)
            }
            Effect::Decided { number, refused } => {
                self.decided(at, number, refused.is_none());
                Ok(())
            }
            Effect::Removed { .. } => {
                // Somebody starts it again on what it has, again and again.
                self.end(at, MemDisk::survive);
                Ok(())
            }
            Effect::GaveUp { number } => {
                for client in &mut self.clients {
                    if let Some(asks) = client.asks.as_mut().filter(|asks| asks.1 == number) {
                        asks.1 = 0;
                    }
                }
                Ok(())
            }
            // Of that, see `step_all`.
            Effect::Absent { .. } | Effect::Report(_) => Ok(()),
        }
    }
}
