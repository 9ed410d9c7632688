//! Control frames that the reading side of a websocket asks the writing side to send.

use super::frame::{Header, Opcode};
use parking_lot::Mutex;
use std::task::Waker;

/// Control frames on their way out. Of pongs only the newest is kept, as RFC 6455 §5.5.3 allows, so
/// that nothing grows however fast a peer pings.
#[derive(Default)]
pub struct Control(Mutex<State>);

#[derive(Default)]
struct State {
    pong: Option<Vec<u8>>,
    close: Option<Vec<u8>>,
    close_sent: bool,
    waiting: Option<Waker>,
}

impl Control {
    /// A ping is to be answered.
    pub fn pong(&self, payload: &[u8]) {
        self.0.lock().pong = Some(payload.to_vec());
    }

    /// A close is to be sent, unless one was.
    pub fn close(&self, payload: &[u8]) {
        self.0.lock().close.get_or_insert_with(|| payload.to_vec());
    }

    /// Writes what is to be sent now, with a key of `mask` where frames are masked; nothing comes after a
    /// close.
    pub fn take(&self, out: &mut Vec<u8>, mask: impl Fn() -> Option<[u8; 4]>) {
        let mut state = self.0.lock();
        if state.close_sent {
            return;
        }
        if let Some(payload) = state.pong.take() {
            Header::push_control(out, Opcode::Pong, &payload, mask());
        }
        if let Some(payload) = state.close.take() {
            Header::push_control(out, Opcode::Close, &payload, mask());
            state.close_sent = true;
        }
    }

    /// Everything taken so far is on its way.
    pub fn flushed(&self) {
        let mut state = self.0.lock();
        if state.close_sent
            && let Some(waker) = state.waiting.take()
        {
            waker.wake();
        }
    }

    /// True if a close has been taken; if not, the waker is called once it is on its way.
    pub fn is_close_sent(&self, waker: &Waker) -> bool {
        let mut state = self.0.lock();
        if !state.close_sent {
            state.waiting = Some(waker.clone());
        }
        state.close_sent
    }
}
