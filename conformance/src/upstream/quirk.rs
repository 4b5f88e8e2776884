//! The ways in which an upstream can be odd, named in the first segment of the
//! path: `/v0only/plain.git`, several with a plus: `/auth+v0only/plain.git`.

use std::time::Duration;

/// One oddity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quirk {
    /// Basic credentials with rights per repository.
    Auth,
    /// Lists are redirected (302) to a sign-in page.
    Login,
    /// A pack's connection breaks half-way.
    Cut,
    /// A pack ends half-way, with clean HTTP framing.
    CutClean,
    /// A pack ends half-way, with clean sideband and HTTP framing.
    CutPack,
    /// One byte of a pack is another, with everything else in order.
    Flip,
    /// A ref list ends before its flush, with clean HTTP framing.
    CutList,
    /// 404 HTML unless the User-Agent starts with `git/`.
    UserAgent,
    /// Who asks is told by a Cookie.
    Cookie,
    /// Git-Protocol is ignored.
    V0Only,
    /// Wants must be advertised tips.
    NoReachableWants,
    /// No partial clones.
    NoFilter,
    /// An ls-refs POST is answered 200 and empty.
    Empty200,
    /// Everything is a 200 with a page.
    Html200,
    /// Everything is a 203 with a page.
    Html203,
    /// Answers come a few bytes at a time.
    Drip,
    /// Only the pack comes a few bytes at a time.
    DripPack,
    /// A moved repository (301), with the same name under `/ok/`.
    Moved,
    /// Redirected (302) to the same path of another server, set by `Upstream::send_elsewhere`.
    Elsewhere,
    /// Every answer is this status.
    Status(u16),
    /// 429 with `Retry-After: 30`.
    Limited,
    /// The connection is closed 150 ms after each answer.
    Idle,
    /// 200 with an ERR packet.
    ErrPacket,
    /// Each fetch starts after two seconds.
    Slow,
    /// Letter case and `.git` are folded, as the big forges do.
    Fold,
}

impl Quirk {
    /// Reads the first path segment; `None` if it names something unknown.
    pub fn list(segment: &str) -> Option<Vec<Self>> {
        let named = segment.split('+').filter(|name| *name != "ok");
        named.map(Self::named).collect()
    }

    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "auth" => Self::Auth,
            "login" => Self::Login,
            "cut" => Self::Cut,
            "cutclean" => Self::CutClean,
            "cutpack" => Self::CutPack,
            "flip" => Self::Flip,
            "cutlist" => Self::CutList,
            "ua" => Self::UserAgent,
            "cookie" => Self::Cookie,
            "v0only" => Self::V0Only,
            "nosha" => Self::NoReachableWants,
            "nofilter" => Self::NoFilter,
            "empty200" => Self::Empty200,
            "html200" => Self::Html200,
            "s203" => Self::Html203,
            "drip" => Self::Drip,
            "drippack" => Self::DripPack,
            "moved" => Self::Moved,
            "elsewhere" => Self::Elsewhere,
            "s429" => Self::Limited,
            "idle" => Self::Idle,
            "errpkt" => Self::ErrPacket,
            "slow" => Self::Slow,
            "fold" => Self::Fold,
            _ => Self::Status(name.strip_prefix('s')?.parse().ok().filter(|code| *code >= 200)?),
        })
    }
}

/// What `idle` leaves a client to notice that the connection is gone.
pub const IDLE: Duration = Duration::from_millis(150);
/// What `slow` waits before a fetch.
pub const SLOW: Duration = Duration::from_secs(2);
/// The pause between two drops of `drip`.
pub const DROP_PAUSE: Duration = Duration::from_millis(40);
/// The size of a drop of `drip`.
pub const DROP: usize = 512;
/// The size of a drop of `drippack`: about a second for one full sideband packet.
pub const PACK_DROP: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_segment_lists_its_quirks() {
        assert_eq!(Quirk::list("ok"), Some(vec![]));
        assert_eq!(Quirk::list("auth+v0only"), Some(vec![Quirk::Auth, Quirk::V0Only]));
        assert_eq!(Quirk::list("s503"), Some(vec![Quirk::Status(503)]));
        assert_eq!(Quirk::list("sandwich"), None);
    }
}
