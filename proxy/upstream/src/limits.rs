//! What an answer says about the upstream's own rate limits. Pure: the wall
//! clock is brought by the caller, since upstreams name dates.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode, header::RETRY_AFTER};

/// The pause when a limit names none.
const UNNAMED: Duration = Duration::from_secs(60);
/// The longest pause that is believed.
const LONGEST: Duration = Duration::from_secs(3600);
const SHORTEST: Duration = Duration::from_secs(1);

/// How long the answer asks us to stay away, if it does: a 429, or a 403 that
/// says it is about a rate.
pub fn pause_asked(status: StatusCode, headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let spent = headers.get("x-ratelimit-remaining").is_some_and(|left| left.as_bytes() == b"0");
    let limited = match status {
        StatusCode::TOO_MANY_REQUESTS => true,
        StatusCode::FORBIDDEN => spent || headers.contains_key(RETRY_AFTER),
        _ => false,
    };
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    limited.then(|| {
        text("retry-after")
            .and_then(|text| retry_after(text, now))
            .or_else(|| {
                let reset = text("x-ratelimit-reset").filter(|_| spent)?.parse().ok()?;
                Some(until(SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(reset))?, now))
            })
            .map_or(UNNAMED, bounded)
    })
}

/// A pause that someone else asked for, brought between 1 s and 1 h.
pub(crate) fn bounded(pause: Duration) -> Duration {
    pause.clamp(SHORTEST, LONGEST)
}

/// Seconds, or an HTTP date (RFC 9110 section 10.2.3).
fn retry_after(text: &str, now: SystemTime) -> Option<Duration> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // Too long for a number is longer than we believe anyway.
        return Some(text.parse().map_or(LONGEST, Duration::from_secs));
    }
    httpdate::parse_http_date(text).ok().map(|date| until(date, now))
}

fn until(date: SystemTime, now: SystemTime) -> Duration {
    date.duration_since(now).unwrap_or(SHORTEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(status: u16, headers: &[(&'static str, &str)]) -> Option<u64> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        // Sun, 06 Nov 1994 08:49:00 GMT
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_740);
        pause_asked(StatusCode::from_u16(status).unwrap(), &map, now).map(|pause| pause.as_secs())
    }

    #[test]
    fn every_form_of_a_pause_is_read() {
        assert_eq!(asked(429, &[("retry-after", "7")]), Some(7));
        assert_eq!(asked(429, &[("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT")]), Some(37));
        assert_eq!(asked(403, &[("retry-after", "9")]), Some(9));
        let spent = ("x-ratelimit-remaining", "0");
        assert_eq!(asked(403, &[spent, ("x-ratelimit-reset", "784111800")]), Some(60));
        assert_eq!(asked(403, &[spent, ("x-ratelimit-reset", "784111840")]), Some(100));
        assert_eq!(asked(429, &[]), Some(60));
        assert_eq!(asked(429, &[("retry-after", "soon")]), Some(60));
    }

    #[test]
    fn no_pause_is_longer_than_an_hour_or_shorter_than_a_second() {
        for text in ["86400", "99999999999999999999999"] {
            assert_eq!(asked(429, &[("retry-after", text)]), Some(3600), "{text}");
        }
        for text in ["0", "Sun, 06 Nov 1994 08:00:00 GMT"] {
            assert_eq!(asked(429, &[("retry-after", text)]), Some(1), "{text}");
        }
    }

    #[test]
    fn a_plain_refusal_is_no_limit() {
        assert_eq!(asked(403, &[("x-ratelimit-remaining", "58")]), None);
        assert_eq!(asked(401, &[("retry-after", "9")]), None);
        assert_eq!(asked(503, &[("retry-after", "9")]), None);
        assert_eq!(asked(200, &[("x-ratelimit-remaining", "0")]), None);
    }
}
