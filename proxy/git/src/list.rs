//! `ls-refs`: what v2 clients see of the refs. Freshness is judged here.

use std::sync::Arc;

use http::Response;
use tidegate_http::Body;
use tokio::time::Instant;

use crate::{
    error::Error,
    git::{Admitted, Git},
    refs::RefTable,
    respond,
    speak::Scope,
    wire::ls_refs::Request,
};

/// Answers a client that is let in.
pub(crate) async fn list(
    git: &Arc<Git>,
    admitted: &Admitted,
    request: &Request,
    since: Instant,
) -> Result<Response<Body>, Error> {
    let live = &admitted.live;
    let (mut view, mut outcome) = match scope(request) {
        Scope::Eager => git.fresh(live, &admitted.who, Scope::Eager, since).await?,
        Scope::Verdict | Scope::All => {
            let known = live.view();
            let named = known.is_some_and(|view| is_named_here(request, &view.refs));
            let scope = if named { Scope::Eager } else { Scope::All };
            git.fresh(live, &admitted.who, scope, since).await?
        }
    };
    if scope(request) == Scope::All && !is_named_here(request, &view.refs) {
        // What was meant is no branch or tag after all.
        (view, outcome) = git.fresh(live, &admitted.who, Scope::All, since).await?;
    }
    let body = request.answer(&view.refs, &|name| git.config.hides(name));
    Ok(respond::whole(respond::RESULT, body, respond::served(&view, outcome, git.lifetime())))
}

fn scope(request: &Request) -> Scope {
    if request.is_eager() { Scope::Eager } else { Scope::All }
}

/// Whether all that is asked for are branches and tags we know, written the
/// way git's client expands a short name (`refs/x`, `refs/tags/x`,
/// `refs/heads/x`, `refs/remotes/x`, ...): then other refs don't matter.
fn is_named_here(request: &Request, refs: &RefTable) -> bool {
    let has = |prefix: &[u8]| request.prefixes.iter().any(|other| other == prefix);
    !request.prefixes.is_empty()
        && request.prefixes.iter().all(|prefix| {
            let Some(rest) = prefix.strip_prefix(b"refs/") else { return true };
            if rest.starts_with(b"heads/") || rest.starts_with(b"tags/") {
                return true;
            }
            let short = rest
                .strip_prefix(b"remotes/")
                .map_or(rest, |rest| rest.strip_suffix(b"/HEAD").unwrap_or(rest));
            let branch = [b"refs/heads/", short].concat();
            let tag = [b"refs/tags/", short].concat();
            has(&branch)
                && has(&tag)
                && (refs.get(&branch).is_some() || refs.get(&tag).is_some() || short == b"HEAD")
        })
}

#[cfg(test)]
mod tests {
    use gix_hash::{Kind, ObjectId};

    use super::*;
    use crate::refs::{Builder, Ref, RefName};

    fn table(names: &[&str]) -> RefTable {
        let mut builder = Builder::new(Kind::Sha1);
        for name in names {
            builder.push(Ref {
                name: RefName::new(name.as_bytes()).unwrap(),
                oid: ObjectId::empty_tree(Kind::Sha1),
                peeled: None,
                symref: None,
            });
        }
        builder.build().unwrap()
    }

    fn expanded(short: &str) -> Request {
        let prefixes = ["", "refs/", "refs/tags/", "refs/heads/", "refs/remotes/"]
            .map(|before| format!("{before}{short}"));
        let mut all: Vec<Vec<u8>> = prefixes.into_iter().map(String::into_bytes).collect();
        all.push(format!("refs/remotes/{short}/HEAD").into_bytes());
        Request { prefixes: all, peel: true, symrefs: true, unborn: true }
    }

    #[test]
    fn a_short_name_of_a_branch_needs_no_other_refs() {
        let refs = table(&["refs/heads/main", "refs/tags/v1"]);
        assert!(is_named_here(&expanded("main"), &refs));
        assert!(is_named_here(&expanded("v1"), &refs));
        assert!(!is_named_here(&expanded("pull/1/head"), &refs));
        assert!(!is_named_here(&Request { prefixes: vec![], ..expanded("main") }, &refs));
        assert!(!is_named_here(&Request { prefixes: vec![b"refs/".to_vec()], ..expanded("main") }, &refs));
    }
}
