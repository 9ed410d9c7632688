//! What a client of monitoring takes: the form of metrics, and whether it may be compressed.

use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::HeaderMap;
use hyper::header::{ACCEPT, ACCEPT_ENCODING, HeaderName};
use std::io::Write as _;

/// Media type of the OpenMetrics form.
pub(super) const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Media type of the classic form.
pub(super) const CLASSIC: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Answers below this many bytes are not worth compressing.
const GZIP_MIN_BYTES: usize = 1024;
/// Highest quality, in thousandths.
const WHOLE: u32 = 1000;

/// A text form of metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Form {
    /// OpenMetrics 1.0.
    #[default]
    OpenMetrics,
    /// Prometheus 0.0.4.
    Classic,
}

impl Form {
    /// The form that a client prefers: who says nothing, or takes anything, gets OpenMetrics.
    pub(super) fn accepted(headers: &HeaderMap) -> Self {
        let quality = |wanted: &[&str]| best(headers, &ACCEPT, |kind| wanted.contains(&kind));
        let anything = quality(&["*/*"]);
        let open = quality(&["application/openmetrics-text", "application/*"]).or(anything);
        let classic = quality(&["text/plain", "text/*"]).or(anything);
        match (open, classic) {
            (Some(open), Some(classic)) if classic > open => Self::Classic,
            (None | Some(0), Some(1..)) => Self::Classic,
            _ => Self::OpenMetrics,
        }
    }
}

/// True if an answer may be compressed with gzip.
pub(super) fn takes_gzip(headers: &HeaderMap) -> bool {
    best(headers, &ACCEPT_ENCODING, |coding| matches!(coding, "gzip" | "x-gzip"))
        .is_some_and(|q| q > 0)
}

/// The highest quality of entries whose first part `fits`, in thousandths.
fn best(headers: &HeaderMap, name: &HeaderName, fits: impl Fn(&str) -> bool) -> Option<u32> {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    let entries = values.flat_map(|value| value.split(','));
    let matching = entries.filter_map(|entry| {
        let mut parts = entry.split(';').map(str::trim);
        let kind = parts.next()?.to_ascii_lowercase();
        fits(&kind).then(|| {
            let quality = parts.find_map(|part| part.strip_prefix("q=")?.parse::<f32>().ok());
            quality.map_or(WHOLE, |q| (q.clamp(0.0, 1.0) * WHOLE as f32) as u32)
        })
    });
    matching.max()
}

/// The text compressed; `None`: it is not worth it.
pub(super) fn gzip(text: &[u8]) -> Option<Vec<u8>> {
    if text.len() < GZIP_MIN_BYTES {
        return None;
    }
    let mut encoder = GzEncoder::new(Vec::with_capacity(text.len() / 8), Compression::fast());
    encoder.write_all(text).ok()?;
    encoder.finish().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    fn headers(name: HeaderName, value: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(name, hyper::header::HeaderValue::from_static(value));
        headers
    }

    #[test]
    fn the_form_is_what_the_client_prefers() {
        let cases = [
            ("*/*", Form::OpenMetrics),
            ("text/plain", Form::Classic),
            (
                "text/plain;version=0.0.4;q=0.5,application/openmetrics-text;version=1.0.0",
                Form::OpenMetrics,
            ),
            (
                "application/openmetrics-text;q=0.3, text/plain;version=0.0.4;q=0.7, */*;q=0.1",
                Form::Classic,
            ),
            ("text/html,application/xhtml+xml,*/*;q=0.8", Form::OpenMetrics),
            ("application/openmetrics-text;q=0, text/plain", Form::Classic),
            ("image/png", Form::OpenMetrics),
            ("TEXT/PLAIN ; Q=1", Form::Classic),
        ];
        for (value, expected) in cases {
            assert_eq!(Form::accepted(&headers(ACCEPT, value)), expected, "{value}");
        }
        assert_eq!(Form::accepted(&HeaderMap::new()), Form::OpenMetrics);
    }

    #[test]
    fn gzip_is_for_those_who_ask() {
        for (value, expected) in [
            ("gzip, deflate", true),
            ("br;q=1, gzip;q=0.2", true),
            ("gzip;q=0", false),
            ("br", false),
        ] {
            assert_eq!(takes_gzip(&headers(ACCEPT_ENCODING, value)), expected, "{value}");
        }
        assert_eq!(gzip(b"small"), None);
        let text = "nuthatch 1\n".repeat(1000);
        let mut back = String::new();
        let packed = gzip(text.as_bytes()).unwrap();
        flate2::read::GzDecoder::new(&*packed).read_to_string(&mut back).unwrap();
        assert!(back == text && packed.len() < text.len() / 10);
    }
}
