//! Messages without JetStream, or with a little of it: `pub`, `sub`, `request`, `reply`.

pub mod publish;
pub mod request;
pub mod subscribe;

use std::time::SystemTime;

use crate::error::CliError;
use crate::session::Session;
use crate::template::{Scene, render};

/// Whether and how templates are filled in.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct TemplateArgs {
    /// Fill in {{Count}} and the like in subject and body (the default)
    #[arg(long, overrides_with = "no_templates")]
    templates: bool,
    /// Send subject and body as they are
    #[arg(long)]
    no_templates: bool,
}

impl TemplateArgs {
    /// The text with its templates filled in. A text that only looks like a template is sent as it
    /// is, with a warning.
    pub fn fill(&self, text: &[u8], count: u64, request: Option<&str>) -> Vec<u8> {
        let Ok(template) = std::str::from_utf8(text) else { return text.to_vec() };
        if self.no_templates || !template.contains("{{") {
            return text.to_vec();
        }
        let scene = Scene { count, request, now: SystemTime::now() };
        match render(template, &scene) {
            Ok(filled) => filled.into_bytes(),
            Err(why) => {
                eprintln!("nuthatch: sent as it is, not as a template: {why}");
                text.to_vec()
            }
        }
    }

    /// A subject with its templates filled in.
    pub fn fill_subject(&self, subject: &str, count: u64) -> String {
        String::from_utf8(self.fill(subject.as_bytes(), count, None))
            .unwrap_or_else(|_| subject.to_owned())
    }
}

/// Refuses what the server would refuse, before anything is sent.
pub fn check_size(session: &Session, size: usize) -> Result<(), CliError> {
    let max = session.client.info().max_payload;
    if max > 0 && size > max {
        let text = format!("the message has {size} bytes, the server takes at most {max}");
        return Err(CliError::Usage(text));
    }
    Ok(())
}

/// A subject that may hold templates, which are checked when they are filled in.
pub fn check_template_subject(subject: &str) -> Result<(), CliError> {
    if subject.contains("{{") { Ok(()) } else { crate::input::check_subject(subject, false) }
}
