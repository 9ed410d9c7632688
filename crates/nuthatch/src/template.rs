//! Templates in bodies and subjects, as `nats pub` and `nats reply` have them: `{{Count}}`,
//! `{{Random 10 100}}` and so on, so that many messages differ.

use std::time::{SystemTime, UNIX_EPOCH};

use ring::rand::{SecureRandom, SystemRandom};
use time::OffsetDateTime;

use crate::input::rfc3339;

/// Longest random text that a template may ask for.
const MAX_RANDOM_BYTES: usize = 64 * 1024 * 1024;

const LETTERS: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// Values that functions of a template use.
#[derive(Debug, Clone, Copy)]
pub struct Scene<'a> {
    /// Number of the message, from 1.
    pub count: u64,
    /// The request that is being answered, when there is one.
    pub request: Option<&'a str>,
    /// Now.
    pub now: SystemTime,
}

/// The text with every `{{…}}` replaced.
///
/// # Errors
/// In words for the user: an unknown function or bad arguments.
pub fn render(text: &str, scene: &Scene<'_>) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        out.push_str(before);
        let (inner, after) =
            after.split_once("}}").ok_or_else(|| "a {{ without its }}".to_owned())?;
        out.push_str(&call(inner, scene)?);
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

fn call(inner: &str, scene: &Scene<'_>) -> Result<String, String> {
    let words: Vec<&str> = inner
        .split(|c: char| c.is_whitespace() || "(),".contains(c))
        .filter(|w| !w.is_empty())
        .collect();
    let (name, arguments) = words.split_first().ok_or_else(|| "an empty {{}}".to_owned())?;
    let since = scene.now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let time = OffsetDateTime::from(scene.now);
    let text = match (name.trim_start_matches('.'), arguments) {
        ("Count" | "Cnt", []) => scene.count.to_string(),
        ("Unix", []) => since.as_secs().to_string(),
        ("UnixNano", []) => since.as_nanos().to_string(),
        ("TimeStamp", []) => rfc3339(time.replace_nanosecond(0).unwrap_or(time)),
        ("Time", []) => kitchen(time),
        ("ID", []) => random(22)?,
        ("Random", [min, max]) => random_between(min, max)?,
        ("Request", []) if scene.request.is_some() => scene.request.unwrap_or_default().to_owned(),
        _ => return Err(format!("{{{{{inner}}}}} is no function of templates")),
    };
    Ok(text)
}

/// `3:04PM`.
fn kitchen(time: OffsetDateTime) -> String {
    let (half, hour) = (if time.hour() < 12 { "AM" } else { "PM" }, (time.hour() + 11) % 12 + 1);
    format!("{hour}:{:02}{half}", time.minute())
}

fn random_between(min: &str, max: &str) -> Result<String, String> {
    let number = |text: &str| {
        text.parse::<usize>()
            .ok()
            .filter(|number| *number <= MAX_RANDOM_BYTES)
            .ok_or_else(|| format!("Random: {text:?} is no length up to {MAX_RANDOM_BYTES}"))
    };
    let (min, max) = (number(min)?, number(max)?);
    if min > max {
        return Err(format!("Random: {min} is more than {max}"));
    }
    let mut bytes = [0; 8];
    SystemRandom::new().fill(&mut bytes).map_err(|_| "no random numbers".to_owned())?;
    random(min + (u64::from_le_bytes(bytes) % (max - min + 1) as u64) as usize)
}

/// Random letters and digits.
pub fn random(length: usize) -> Result<String, String> {
    let mut bytes = vec![0; length];
    SystemRandom::new().fill(&mut bytes).map_err(|_| "no random numbers".to_owned())?;
    Ok(bytes.iter().map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()])).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn scene(request: Option<&str>) -> Scene<'_> {
        let now = UNIX_EPOCH + Duration::from_secs(13 * 3600 + 61);
        Scene { count: 7, request, now }
    }

    #[test]
    fn functions() {
        let check = |text: &str, expected: &str| {
            assert_eq!(render(text, &scene(None)).as_deref(), Ok(expected), "{text}");
        };
        check("no template", "no template");
        check("a {{Count}} b {{ .Cnt }}", "a 7 b 7");
        check("{{Unix}} {{Time}} {{TimeStamp}}", "46861 1:01PM 1970-01-01T13:01:01Z");
    }

    #[test]
    fn random_texts() {
        for text in ["{{Random 3 5}}", "{{ Random(3, 5) }}"] {
            let made = render(text, &scene(None)).unwrap();
            assert!((3..=5).contains(&made.len()), "{made}");
        }
        assert_ne!(render("{{ID}}", &scene(None)), render("{{ID}}", &scene(None)));
    }

    #[test]
    fn requests_and_errors() {
        assert_eq!(render("got {{Request}}", &scene(Some("x"))).as_deref(), Ok("got x"));
        for bad in ["{{Request}}", "{{", "{{}}", "{{Nope}}", "{{Random 5 3}}", "{{Random 1}}"] {
            assert!(render(bad, &scene(None)).is_err(), "{bad}");
        }
    }
}
