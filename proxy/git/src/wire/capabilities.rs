//! What a server can do: read from an upstream's first answer, written into
//! ours.
//!
//! V0 and v1 have one line of words (gitprotocol-capabilities(5)), v2 one line
//! per capability with values (gitprotocol-v2(5)). Both become one set, so that
//! the rest of the room asks `has(Feature::Filter)` and not which version.

use gix_hash::Kind;

use super::{error::AnswerError, pkt, protocol::Version};
use crate::refs::RefName;

/// How we call ourselves to clients.
pub const AGENT: &str = concat!("tidegate/", env!("CARGO_PKG_VERSION"));
/// How we call ourselves to upstreams; some refuse whoever isn't called git.
pub const UPSTREAM_AGENT: &str = concat!("git/tidegate-", env!("CARGO_PKG_VERSION"));

/// Something a server may be able to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// Acknowledges several commits in one round.
    MultiAck,
    /// The same, saying why.
    MultiAckDetailed,
    /// Sends the pack as soon as it is ready, without `done`.
    NoDone,
    /// Deltas against objects the client has.
    ThinPack,
    /// Progress and errors beside the pack, small frames.
    SideBand,
    /// The same with large frames.
    SideBand64k,
    /// Deltas that name their base by offset.
    OfsDelta,
    /// Histories cut by depth.
    Shallow,
    /// Histories cut by date.
    DeepenSince,
    /// Histories cut by ref.
    DeepenNot,
    /// Depth counted from the client's boundary.
    DeepenRelative,
    /// Progress can be silenced.
    NoProgress,
    /// Tags come along with what they point at.
    IncludeTag,
    /// Any advertised or hidden tip may be wanted by id.
    AllowTip,
    /// Any reachable commit may be wanted by id.
    AllowReachable,
    /// Partial clones.
    Filter,
    /// The server takes an `agent`.
    Agent,
    /// The server takes an `object-format`.
    ObjectFormat,
    /// V2: the `ls-refs` command.
    LsRefs,
    /// V2: the `fetch` command.
    Fetch,
    /// V2: ls-refs shows a HEAD without commits.
    Unborn,
    /// V2: acknowledgments go on until `done`.
    WaitForDone,
    /// V2: refs wanted by name.
    RefInWant,
    /// V2: the whole answer in sideband frames.
    SidebandAll,
    /// V2: the client may send options.
    ServerOption,
}

/// The words of v0 and v1, in the order git writes them.
const WORDS: [(&[u8], Feature); 16] = [
    (b"multi_ack", Feature::MultiAck),
    (b"thin-pack", Feature::ThinPack),
    (b"side-band", Feature::SideBand),
    (b"side-band-64k", Feature::SideBand64k),
    (b"ofs-delta", Feature::OfsDelta),
    (b"shallow", Feature::Shallow),
    (b"deepen-since", Feature::DeepenSince),
    (b"deepen-not", Feature::DeepenNot),
    (b"deepen-relative", Feature::DeepenRelative),
    (b"no-progress", Feature::NoProgress),
    (b"include-tag", Feature::IncludeTag),
    (b"multi_ack_detailed", Feature::MultiAckDetailed),
    (b"allow-tip-sha1-in-want", Feature::AllowTip),
    (b"allow-reachable-sha1-in-want", Feature::AllowReachable),
    (b"no-done", Feature::NoDone),
    (b"filter", Feature::Filter),
];

/// What every v2 server does that has `fetch`.
const FETCH: [Feature; 7] = [
    Feature::Fetch,
    Feature::ThinPack,
    Feature::OfsDelta,
    Feature::IncludeTag,
    Feature::NoProgress,
    Feature::SideBand,
    Feature::SideBand64k,
];

/// What `shallow` among the values of v2's `fetch` stands for.
const SHALLOW: [Feature; 4] =
    [Feature::Shallow, Feature::DeepenSince, Feature::DeepenNot, Feature::DeepenRelative];

/// What one upstream can do with one repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    version: Version,
    object_format: Kind,
    features: u32,
    agent: Option<String>,
}

impl Capabilities {
    /// A server that can do nothing but what its version requires.
    pub fn new(version: Version, object_format: Kind) -> Self {
        Self { version, object_format, features: 0, agent: None }
    }

    /// Which protocol the upstream spoke.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The hash that names the repository's objects.
    pub fn object_format(&self) -> Kind {
        self.object_format
    }

    /// What the upstream calls itself.
    pub fn agent(&self) -> Option<&str> {
        self.agent.as_deref()
    }

    /// Whether the upstream can do this.
    pub fn has(&self, feature: Feature) -> bool {
        self.features & (1 << feature as u32) != 0
    }

    /// Whether an object may be wanted by its id though no ref points at it.
    ///
    /// V2 servers don't say; git's own allow it, others refuse when asked.
    pub fn takes_any_want(&self) -> bool {
        self.version == Version::V2 || self.has(Feature::AllowReachable)
    }

    /// Adds features.
    #[must_use]
    pub fn with(mut self, features: &[Feature]) -> Self {
        self.add(features);
        self
    }

    fn add(&mut self, features: &[Feature]) {
        for feature in features {
            self.features |= 1 << *feature as u32;
        }
    }

    fn set_format(&mut self, name: &[u8]) -> Result<(), AnswerError> {
        let name = String::from_utf8_lossy(name);
        self.object_format =
            name.parse().map_err(|_| AnswerError::ObjectFormat(pkt::shown(name.as_bytes())))?;
        self.add(&[Feature::ObjectFormat]);
        Ok(())
    }

    fn set_agent(&mut self, agent: &[u8]) {
        self.agent = Some(pkt::shown(agent));
        self.add(&[Feature::Agent]);
    }

    /// Reads the words behind the first ref of a v0 or v1 answer.
    pub(super) fn parse_words(version: Version, words: &[u8]) -> Result<(Self, Vec<Symref>), AnswerError> {
        let mut found = Self::new(version, Kind::Sha1);
        let mut symrefs = Vec::new();
        for word in words.split(|byte| *byte == b' ') {
            if let Some((_, feature)) = WORDS.iter().find(|(name, _)| *name == word) {
                found.add(&[*feature]);
            } else if let Some(format) = word.strip_prefix(b"object-format=") {
                found.set_format(format)?;
            } else if let Some(agent) = word.strip_prefix(b"agent=") {
                found.set_agent(agent);
            } else if let Some(symref) = word.strip_prefix(b"symref=") {
                symrefs.extend(Symref::parse(symref));
            }
        }
        Ok((found, symrefs))
    }

    /// Reads one line of a v2 answer.
    pub(super) fn parse_line(&mut self, line: &[u8]) -> Result<(), AnswerError> {
        let (key, value) = match line.iter().position(|byte| *byte == b'=') {
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (line, &b""[..]),
        };
        let values = value.split(|byte| *byte == b' ');
        match key {
            b"agent" => self.set_agent(value),
            b"object-format" => self.set_format(value)?,
            b"server-option" => self.add(&[Feature::ServerOption]),
            b"ls-refs" => {
                self.add(&[Feature::LsRefs]);
                if values.into_iter().any(|word| word == b"unborn") {
                    self.add(&[Feature::Unborn]);
                }
            }
            b"fetch" => {
                self.add(&FETCH);
                for word in values {
                    match word {
                        b"shallow" => self.add(&SHALLOW),
                        b"filter" => self.add(&[Feature::Filter]),
                        b"ref-in-want" => self.add(&[Feature::RefInWant]),
                        b"wait-for-done" => self.add(&[Feature::WaitForDone]),
                        b"sideband-all" => self.add(&[Feature::SidebandAll]),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// A `symref=` word of a v0 answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Symref {
    /// `HEAD`, or a ref.
    pub(super) name: Vec<u8>,
    /// Where it leads.
    pub(super) target: RefName,
}

impl Symref {
    /// A word that makes no sense is passed over, as git's client does.
    fn parse(word: &[u8]) -> Option<Self> {
        let colon = word.iter().position(|byte| *byte == b':')?;
        let target = RefName::new(&word[colon + 1..]).ok()?;
        Some(Self { name: word[..colon].to_vec(), target })
    }
}

/// Our words for a v0 or v1 answer, `symref` being where HEAD leads.
pub(super) fn own_words(hash: Kind, symref: Option<&RefName>) -> Vec<u8> {
    let mut words = Vec::new();
    for (word, feature) in WORDS {
        if feature == Feature::Filter
            && let Some(target) = symref
        {
            words.extend_from_slice(b"symref=HEAD:");
            words.extend_from_slice(target);
            words.push(b' ');
        }
        words.extend_from_slice(word);
        words.push(b' ');
    }
    words.extend_from_slice(format!("object-format={hash} agent={AGENT}").as_bytes());
    words
}

/// Our lines for a v2 answer.
pub(super) fn own_lines(hash: Kind) -> [String; 5] {
    [
        format!("agent={AGENT}"),
        "ls-refs=unborn".to_owned(),
        "fetch=shallow wait-for-done filter ref-in-want".to_owned(),
        "server-option".to_owned(),
        format!("object-format={hash}"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_matched_whole() {
        let words = b"multi_ack_detailed side-band-64k agent=git/2.39.5 symref=HEAD:refs/heads/x filters";
        let (found, symrefs) = Capabilities::parse_words(Version::V0, words).unwrap();
        assert!(found.has(Feature::MultiAckDetailed) && found.has(Feature::SideBand64k));
        assert!(
            !found.has(Feature::MultiAck) && !found.has(Feature::SideBand) && !found.has(Feature::Filter)
        );
        assert_eq!(found.agent(), Some("git/2.39.5"));
        assert_eq!(symrefs[0].target.as_bytes(), b"refs/heads/x");
        assert!(!found.takes_any_want());
    }

    #[test]
    fn what_we_advertise_we_read_back() {
        let (found, _) = Capabilities::parse_words(Version::V0, &own_words(Kind::Sha1, None)).unwrap();
        assert!(WORDS.iter().all(|(_, feature)| found.has(*feature)));
        let mut found = Capabilities::new(Version::V2, Kind::Sha1);
        for line in own_lines(Kind::Sha1) {
            found.parse_line(line.as_bytes()).unwrap();
        }
        for feature in
            [Feature::Unborn, Feature::DeepenSince, Feature::Filter, Feature::RefInWant, Feature::OfsDelta]
        {
            assert!(found.has(feature), "{feature:?}");
        }
        assert!(!found.has(Feature::SidebandAll));
    }

    #[test]
    fn a_hash_we_do_not_have_is_named() {
        let mut found = Capabilities::new(Version::V2, Kind::Sha1);
        let answer = found.parse_line(b"object-format=sha3");
        assert_eq!(answer, Err(AnswerError::ObjectFormat("sha3".into())));
    }
}
