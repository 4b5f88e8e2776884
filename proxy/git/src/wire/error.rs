//! What can be wrong with a client's request, with an upstream's answer, and
//! with a request that an upstream can't be asked.

use super::pkt::PktError;
use crate::refs::BadRefs;

/// A request that is no git request, or one we can't answer.
///
/// The text goes to the client as an `ERR` packet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The body isn't made of packets, or is cut inside one.
    #[error("the request is not made of git packets: {0}")]
    Framing(#[from] PktError),
    /// The body ends where more has to follow.
    #[error("the request ends before its flush packet")]
    Truncated,
    /// A line that has no place where it stands.
    #[error("unexpected line: '{0}'")]
    Line(String),
    /// A line whose value can't be read.
    #[error("cannot read the line '{0}'")]
    Value(String),
    /// A section marker where none belongs.
    #[error("unexpected section marker in the request")]
    Marker,
    /// More of one thing than we take.
    #[error("too many {what} in one request; at most {most} are accepted")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How many are accepted.
        most: usize,
    },
    /// A filter we don't know or don't serve.
    #[error("filter '{filter}' is not supported: {why}")]
    Filter {
        /// As the client wrote it.
        filter: String,
        /// What to ask instead.
        why: &'static str,
    },
    /// Two ways of cutting history at once.
    #[error("deepen and deepen-since (or deepen-not) cannot be used together")]
    TwoDepths,
    /// The client thinks in another hash.
    #[error("mismatched object format: the repository has {ours}, the request says {theirs}")]
    ObjectFormat {
        /// The repository's.
        ours: String,
        /// The client's.
        theirs: String,
    },
    /// Protocol v2: no command, or two.
    #[error("a request carries exactly one command")]
    NotOneCommand,
    /// Protocol v2: a command we don't advertise.
    #[error("unknown command '{0}'; this server knows ls-refs and fetch")]
    Command(String),
}

/// An upstream's answer that doesn't count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// Nothing at all came. A v0-only server answers a v2 command like this.
    #[error("the answer is empty")]
    Empty,
    /// A web page: a login form, a proxy's error.
    #[error("the answer is a web page, not git's protocol")]
    Html,
    /// The bytes aren't packets.
    #[error("the answer is not made of git packets: {0}")]
    Framing(PktError),
    /// The answer stops before its end.
    #[error("the answer is cut off before its end")]
    Truncated,
    /// Something follows after the end.
    #[error("{0} bytes follow after the end of the answer")]
    Trailing(usize),
    /// The upstream says what is wrong in its own words.
    #[error("the upstream says: {0}")]
    Remote(String),
    /// A hash this build doesn't know: the repository can only be relayed.
    #[error("the repository's object format '{0}' is not supported here")]
    ObjectFormat(String),
    /// A protocol version this build doesn't know.
    #[error("the upstream speaks an unknown protocol version: '{0}'")]
    Version(String),
    /// A line that has no place where it stands.
    #[error("unexpected line in the answer: '{0}'")]
    Line(String),
    /// A section marker where none belongs.
    #[error("unexpected section marker in the answer")]
    Marker,
    /// A pack frame without a known channel.
    #[error("unknown sideband channel {0}")]
    Channel(u8),
    /// More lines than any repository has.
    #[error("the answer has more than {0} lines before its pack")]
    TooLong(usize),
    /// The refs contradict each other.
    #[error("the upstream's refs are not usable")]
    Refs(#[from] BadRefs),
}

impl From<PktError> for AnswerError {
    fn from(error: PktError) -> Self {
        match error {
            PktError::Truncated { .. } => Self::Truncated,
            PktError::Length { .. } => Self::Framing(error),
        }
    }
}

/// Something this upstream can't be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    /// Partial clone filters.
    #[error("the upstream has no partial clone filters")]
    Filter,
    /// Any kind of shallow fetch.
    #[error("the upstream has no shallow fetches")]
    Shallow,
    /// Cutting history at a time.
    #[error("the upstream cannot cut history at a date")]
    DeepenSince,
    /// Cutting history at a ref.
    #[error("the upstream cannot cut history at a ref")]
    DeepenNot,
    /// Deepening from where the client is.
    #[error("the upstream cannot deepen relative to the client's depth")]
    DeepenRelative,
    /// Refs wanted by name.
    #[error("the upstream cannot be asked for refs by name")]
    WantRef,
}
