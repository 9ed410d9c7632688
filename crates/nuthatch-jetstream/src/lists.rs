//! `STREAM.NAMES` and `STREAM.LIST`: the streams of an account, at whatever node.

use crate::across::Listed;
use crate::envelope::{self, Paged, ResponseType};
use crate::registry::Entry;
use crate::request::parse_optional;
use crate::service::{Answer, JetStream};
use crate::streams::{LIST_PAGE, NAMES_PAGE, offset_of};
use nuthatch_protocol::js::StreamInfo;
use nuthatch_protocol::jserror::JsError;
use nuthatch_server::shares::Share;
use nuthatch_streams::AccountId;
use serde::{Deserialize, Serialize};

/// Bytes of subjects and metadata in one page of `STREAM.LIST`, about; one stream may have more.
const LIST_BYTES: usize = 4 << 20;

#[derive(Deserialize, Default)]
#[serde(default)]
struct ListRequest {
    offset: i64,
    subject: String,
}

#[derive(Serialize)]
struct NamesBody {
    #[serde(flatten)]
    page: Paged,
    /// `null` when there are none, as upstream.
    streams: Option<Vec<String>>,
}

#[derive(Serialize)]
struct ListBody {
    #[serde(flatten)]
    page: Paged,
    streams: Vec<StreamInfo>,
    /// Those whose node does not answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing: Vec<String>,
}

impl JetStream {
    pub(super) async fn stream_names(&self, account: AccountId, body: &[u8]) -> Answer {
        let request: ListRequest = parse_optional(body, self.settings.strict)?;
        let all = self.all_streams_with(account, &request.subject).await;
        let total = all.len();
        let offset = offset_of(request.offset).min(total);
        let page = all[offset..].iter().take(NAMES_PAGE);
        let streams: Vec<String> = page.map(|listed| listed.name().to_owned()).collect();
        let streams = (!streams.is_empty()).then_some(streams);
        let page = Paged { total, offset, limit: NAMES_PAGE };
        Ok(envelope::ok(ResponseType("stream_names"), &NamesBody { page, streams }))
    }

    pub(super) async fn stream_list(
        &self,
        account: AccountId,
        body: &[u8],
        share: &mut Share,
    ) -> Answer {
        let request: ListRequest = parse_optional(body, self.settings.strict)?;
        let all = self.all_streams_with(account, &request.subject).await;
        let total = all.len();
        let offset = offset_of(request.offset).min(total);
        let mut bytes = 0;
        let mut page = Vec::new();
        for listed in all[offset..].iter().take(LIST_PAGE) {
            // The rest comes with the next page.
            bytes += listed.bytes();
            if bytes > LIST_BYTES && !page.is_empty() {
                break;
            }
            page.push(listed);
        }
        let mut elsewhere = self.infos_elsewhere(account, &page, share).await?;
        let (mut streams, mut missing) = (Vec::new(), Vec::new());
        for listed in page {
            let entry = match listed {
                Listed::Here(entry) => entry,
                Listed::At(_, stream) => {
                    match elsewhere.remove(&stream.name) {
                        Some(info) => streams.push(info),
                        None => missing.push(stream.name.clone()),
                    }
                    continue;
                }
            };
            match self.listed_info(account, entry).await {
                Ok(info) => streams.push(info),
                // Deleted since the registry was read.
                Err(error) if error.err_code == JsError::STREAM_NOT_FOUND.err_code => {}
                Err(error) => return Err(error),
            }
        }
        let page = Paged { total, offset, limit: LIST_PAGE };
        envelope::charged(ResponseType("stream_list"), &ListBody { page, streams, missing }, share)
    }

    /// A stream's info as it stands in a list.
    pub(super) async fn listed_info(
        &self,
        account: AccountId,
        entry: &Entry,
    ) -> Result<StreamInfo, JsError> {
        let mut info = self.calls.current_info(entry).await?;
        self.complete_stream(&mut info);
        self.complete_copies(account, &mut info);
        self.complete_cluster(account, &mut info);
        Ok(info)
    }
}
