//! Repositories made with stock git, and stock git's own answers.

use std::{
    collections::{BTreeSet, HashSet},
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use gix_hash::{Kind, ObjectId};
use tempfile::TempDir;

use super::history;
use crate::pack::{Deepen, Graph, PackSet, Plan, Query, View, write};

/// Numbers that are the same on every run.
#[derive(Clone)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `sides`.
    pub(super) fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % sides
    }

    pub(super) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.roll(from.len())].clone()
    }

    pub(super) fn some<T: Clone>(&mut self, from: &[T], most: usize) -> Vec<T> {
        (0..=self.roll(most)).map(|_| self.pick(from)).collect()
    }
}

/// A bare repository.
pub(super) struct Repository {
    dir: TempDir,
}

/// A snapshot of one, opened by us.
pub(super) struct Snapshot {
    pub(super) set: PackSet,
    pub(super) graph: Graph,
    pub(super) tags: Vec<(ObjectId, ObjectId)>,
}

impl Snapshot {
    pub(super) fn view(&self) -> View<'_> {
        View { set: &self.set, graph: &self.graph }
    }

    pub(super) fn pack(&self, plan: &Plan) -> Vec<u8> {
        let mut pack = Vec::new();
        let stats = write(&self.view(), plan, &mut pack).unwrap();
        assert_eq!(stats.bytes, pack.len() as u64);
        assert_eq!(stats.objects, objects_in(&pack));
        pack
    }
}

/// How many objects a pack's header promises.
pub(super) fn objects_in(pack: &[u8]) -> u32 {
    u32::from_be_bytes(pack[8..12].try_into().unwrap())
}

pub(super) fn oid(hex: &str) -> ObjectId {
    ObjectId::from_hex(hex.trim().as_bytes()).unwrap()
}

pub(super) fn oids(lines: &str) -> Vec<ObjectId> {
    lines.lines().map(|line| oid(line.split(' ').next().unwrap())).collect()
}

/// One name a line, as git's commands take them.
pub(super) fn lines<'a>(ids: impl IntoIterator<Item = &'a ObjectId>) -> String {
    ids.into_iter().fold(String::new(), |text, id| text + &id.to_string() + "\n")
}

pub(super) fn set(ids: &[ObjectId]) -> BTreeSet<ObjectId> {
    ids.iter().copied().collect()
}

impl Repository {
    pub(super) fn empty() -> Self {
        let repository = Self { dir: TempDir::new().unwrap() };
        for folder in ["objects/pack", "objects/info", "refs"] {
            std::fs::create_dir_all(repository.path().join(folder)).unwrap();
        }
        std::fs::write(repository.path().join("HEAD"), "ref: refs/heads/none\n").unwrap();
        // With bitmaps git leaves out more than its own rules ask for.
        let config = "[core]\nrepositoryformatversion=0\nbare=true\n[gc]\nauto=0\n[pack]\nthreads=1\n\
                      [uploadpack]\nallowFilter=true\nallowAnySHA1InWant=true\n\
                      [repack]\nwriteBitmaps=false\n[fastimport]\nunpackLimit=1\n";
        std::fs::write(repository.path().join("config"), config).unwrap();
        repository
    }

    /// `commits` commits with branches, merges, octopuses, several roots and annotated tags.
    pub(super) fn random(seed: u64, commits: usize) -> Self {
        let repository = Self::empty();
        repository.feed(&["fast-import", "--quiet", "--force"], history::random(seed, commits).as_bytes());
        repository.git(&["repack", "-adfq", "--window=20", "--depth=20"]);
        repository
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("git");
        command
            .current_dir(self.path())
            .args(arguments)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("HOME", "/nonexistent");
        for name in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{name}_NAME"), "n").env(format!("GIT_{name}_EMAIL"), "e");
            command.env(format!("GIT_{name}_DATE"), "1000000000 +0000");
        }
        command
    }

    pub(super) fn git(&self, arguments: &[&str]) -> String {
        self.feed(arguments, b"")
    }

    pub(super) fn feed(&self, arguments: &[&str], input: &[u8]) -> String {
        let (ok, out, errors) = self.try_feed(arguments, input);
        assert!(ok, "git {arguments:?}: {errors}");
        String::from_utf8(out).unwrap().trim_end().to_owned()
    }

    pub(super) fn try_feed(&self, arguments: &[&str], input: &[u8]) -> (bool, Vec<u8>, String) {
        let mut command = self.command(arguments);
        if arguments[0] == "upload-pack" {
            command.env("GIT_PROTOCOL", "version=2");
        }
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let output = std::thread::scope(|scope| {
            // git may stop reading early; what it says then is in its status.
            scope.spawn(move || drop(stdin.write_all(input)));
            child.wait_with_output().unwrap()
        });
        (output.status.success(), output.stdout, String::from_utf8_lossy(&output.stderr).into_owned())
    }

    pub(super) fn commits(&self) -> Vec<ObjectId> {
        oids(&self.git(&["rev-list", "--all", "--topo-order"]))
    }

    pub(super) fn tips(&self) -> Vec<ObjectId> {
        oids(&self.git(&["for-each-ref", "--format=%(objectname)"]))
    }

    pub(super) fn branches(&self) -> Vec<ObjectId> {
        oids(&self.git(&["for-each-ref", "--format=%(objectname)", "refs/heads"]))
    }

    pub(super) fn indexes(&self) -> Vec<PathBuf> {
        let folder = std::fs::read_dir(self.path().join("objects/pack")).unwrap();
        folder
            .map(|file| file.unwrap().path())
            .filter(|path| path.extension().is_some_and(|e| e == "idx"))
            .collect()
    }

    /// Opens what is packed, with all refs as roots and the shallow file as boundary.
    pub(super) fn open(&self) -> Snapshot {
        let set = PackSet::open(&self.indexes(), Kind::Sha1).unwrap();
        let shallow = std::fs::read_to_string(self.path().join("shallow")).unwrap_or_default();
        let boundary: HashSet<_> = oids(&shallow).into_iter().collect();
        let graph = Graph::build(&set, &self.tips(), &boundary).unwrap();
        let named = "--format=%(objecttype) %(objectname)";
        let named = self.git(&["for-each-ref", named, "refs/tags"]);
        let tags: Vec<_> = named.lines().filter_map(|line| line.strip_prefix("tag ")).map(oid).collect();
        let ends: String = lines(&tags).replace('\n', "^{}\n");
        let ends = oids(&self.feed(&["cat-file", "--batch-check"], ends.as_bytes()));
        let tags = tags.into_iter().zip(ends).collect();
        Snapshot { set, graph, tags }
    }

    /// A client's repository with `tips` fetched from here.
    pub(super) fn client(&self, tips: &[ObjectId], options: &[&str]) -> Self {
        let client = Self::empty();
        let from = format!("file://{}", self.path().display());
        let mut arguments = vec!["fetch", "-q", "--no-tags"];
        arguments.extend(options);
        arguments.push(&from);
        let refspecs: Vec<_> =
            tips.iter().enumerate().map(|(at, tip)| format!("{tip}:refs/heads/t{at}")).collect();
        arguments.extend(refspecs.iter().map(String::as_str));
        if !tips.is_empty() {
            client.git(&arguments);
        }
        client
    }

    /// A repository with the same objects and shallow file that can change on its own.
    pub(super) fn twin(&self) -> Self {
        let twin = Self::empty();
        let objects = self.path().join("objects");
        std::fs::write(twin.path().join("objects/info/alternates"), objects.to_str().unwrap()).unwrap();
        if let Ok(shallow) = std::fs::read(self.path().join("shallow")) {
            std::fs::write(twin.path().join("shallow"), shallow).unwrap();
        }
        twin
    }

    /// The client's shallow file.
    pub(super) fn shallows(&self) -> Vec<ObjectId> {
        oids(&std::fs::read_to_string(self.path().join("shallow")).unwrap_or_default())
    }

    /// Takes a pack as a fetch would, then looks whether all of `wants` is complete.
    pub(super) fn accept(&self, pack: &[u8], plan: &Plan, wants: &[ObjectId]) -> Result<(), String> {
        let mut shallow = set(&self.shallows());
        shallow.extend(&plan.shallow);
        plan.unshallow.iter().for_each(|id| assert!(shallow.remove(id)));
        let text = lines(&shallow);
        let file = self.path().join("shallow");
        if text.is_empty() {
            std::fs::remove_file(file).ok();
        } else {
            std::fs::write(file, text).unwrap();
        }
        let (ok, _, errors) = self.try_feed(&["index-pack", "--stdin", "--fix-thin", "--strict"], pack);
        if !ok {
            return Err(errors);
        }
        let wants: Vec<_> = wants.iter().map(ObjectId::to_string).collect();
        let mut arguments = vec!["rev-list", "--objects", "--quiet"];
        arguments.extend(wants.iter().map(String::as_str));
        let (ok, _, errors) = self.try_feed(&arguments, b"");
        if ok { Ok(()) } else { Err(errors) }
    }

    /// The objects of a pack that isn't thin.
    pub(super) fn listed(&self, pack: &[u8]) -> BTreeSet<ObjectId> {
        if objects_in(pack) == 0 {
            return BTreeSet::new();
        }
        let scratch = TempDir::new().unwrap();
        let file = scratch.path().join("p.pack");
        std::fs::write(&file, pack).unwrap();
        self.git(&["index-pack", file.to_str().unwrap()]);
        let index = gix_pack::index::File::at(file.with_extension("idx"), Kind::Sha1).unwrap();
        index.iter().map(|entry| entry.oid).collect()
    }

    /// Asserts that two packs that aren't thin have the same objects.
    pub(super) fn assert_same(&self, ours: &[u8], stock: &[u8], about: &dyn std::fmt::Debug) {
        let (ours, stock) = (self.listed(ours), self.listed(stock));
        let kinds = |ids: Vec<&ObjectId>| -> Vec<String> {
            ids.iter()
                .map(|id| self.git(&["cat-file", "-t", &id.to_string()]) + " " + &id.to_string())
                .collect()
        };
        let (more, less) =
            (kinds(ours.difference(&stock).collect()), kinds(stock.difference(&ours).collect()));
        assert!(more.is_empty() && less.is_empty(), "more than stock: {more:?}, less: {less:?}: {about:?}");
    }

    /// What stock upload-pack answers; the error text if it refuses.
    pub(super) fn stock(&self, query: &Query<'_>) -> Result<Answer, String> {
        if let Some(Deepen::History { not, .. }) = &query.deepen {
            // On the wire these are names.
            for id in not {
                self.git(&["update-ref", &format!("refs/not/{id}"), &id.to_string()]);
            }
        }
        let request = request(query);
        let (ok, out, errors) = self.try_feed(&["upload-pack", "--stateless-rpc", "."], &request);
        if ok { Ok(Answer::read(&out)) } else { Err(errors) }
    }
}

/// The answer of stock git to a fetch.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) shallow: BTreeSet<ObjectId>,
    pub(super) unshallow: BTreeSet<ObjectId>,
    pub(super) pack: Vec<u8>,
}

impl Answer {
    fn read(mut bytes: &[u8]) -> Self {
        let mut answer = Self::default();
        while bytes.len() >= 4 {
            let length = usize::from_str_radix(std::str::from_utf8(&bytes[..4]).unwrap(), 16).unwrap();
            let line = &bytes[4..length.max(4)];
            bytes = &bytes[length.max(4)..];
            match line {
                [1, data @ ..] => answer.pack.extend_from_slice(data),
                [b's', b'h', b'a', b'l', b'l', b'o', b'w', b' ', hex @ ..] => {
                    answer.shallow.insert(oid(std::str::from_utf8(hex).unwrap()));
                }
                [b'u', b'n', b's', b'h', b'a', b'l', b'l', b'o', b'w', b' ', hex @ ..] => {
                    answer.unshallow.insert(oid(std::str::from_utf8(hex).unwrap()));
                }
                _ => {}
            }
        }
        answer
    }
}

/// The protocol v2 request that says what `query` says.
fn request(query: &Query<'_>) -> Vec<u8> {
    let mut lines = vec!["no-progress".to_owned(), "done".to_owned()];
    lines.extend(query.thin.then(|| "thin-pack".to_owned()));
    lines.extend(query.ofs_delta.then(|| "ofs-delta".to_owned()));
    lines.extend(query.include_tag.then(|| "include-tag".to_owned()));
    lines.extend(query.wants.iter().map(|id| format!("want {id}")));
    lines.extend(query.common.iter().map(|id| format!("have {id}")));
    lines.extend(query.client_shallows.iter().map(|id| format!("shallow {id}")));
    match &query.deepen {
        None => {}
        Some(Deepen::Depth(depth)) => lines.push(format!("deepen {depth}")),
        Some(Deepen::Relative(depth)) => {
            lines.push(format!("deepen {depth}"));
            lines.push("deepen-relative".to_owned());
        }
        Some(Deepen::History { since, not }) => {
            lines.extend(since.map(|since| format!("deepen-since {since}")));
            lines.extend(not.iter().map(|id| format!("deepen-not refs/not/{id}")));
        }
    }
    lines.extend(query.filter.as_ref().map(|filter| format!("filter {}", filter.encode())));
    let packet = |line: &String| format!("{:04x}{line}\n", line.len() + 5);
    let mut body = packet(&"command=fetch".to_owned()) + "0001";
    body.extend(lines.iter().map(packet));
    (body + "0000").into_bytes()
}
