//! Reading the configuration again, and looking what that would do.

use super::Server;
use crate::options::ReloadPlan;
use std::sync::Arc;

/// How the configuration is read again.
pub trait Reload: Send + Sync {
    /// Reads it and adopts what may change while running.
    ///
    /// # Errors
    /// A sentence: what is wrong with it, or what needs a restart; then nothing has changed.
    fn apply(&self, server: &Arc<Server>) -> Result<(), String>;

    /// Reads it and tells what that would change; nothing does.
    ///
    /// # Errors
    /// A sentence: what is wrong with it.
    fn preview(&self, server: &Server) -> Result<ReloadPlan, String>;
}

const NOTHING: &str = "this server has no configuration to read again";

impl Server {
    /// Says how the configuration is read again; only the first call has an effect.
    pub fn set_reload(&self, reload: Box<dyn Reload>) {
        let _ = self.reload.set(reload);
    }

    /// Reads the configuration again.
    ///
    /// # Errors
    /// A sentence: what is wrong with it, or what needs a restart; then nothing has changed.
    pub fn reload(self: &Arc<Self>) -> Result<(), String> {
        self.reload.get().ok_or(NOTHING)?.apply(self)
    }

    /// What reading the configuration again would change.
    ///
    /// # Errors
    /// A sentence: what is wrong with it.
    pub fn preview_reload(&self) -> Result<ReloadPlan, String> {
        self.reload.get().ok_or(NOTHING)?.preview(self)
    }
}
