// Command gogit is go-git v5 behaving as Argo CD and Flux use it.
//
//	gogit lsremote URL            Argo CD's repo-server: v0 list, Basic sent at once, no redirects, no keep-alive
//	gogit list URL REF            Flux's poll of a known branch, tag or name: one list
//	gogit branch URL DIR NAME     Flux ref.branch: depth 1, single branch, no tags
//	gogit tag URL DIR NAME        Flux ref.tag: depth 1, single reference, tags follow
//	gogit semver URL DIR          Flux ref.semver: depth 1, every branch and every tag
//	gogit commit URL DIR SHA      Flux ref.commit: no depth, every branch, no tags
//	gogit fetch DIR               a later fetch of every branch and tag into an existing clone
//	gogit push URL DIR REFSPEC    image automation: a push with report-status
//
// Credentials come from GOGIT_USER and GOGIT_PASSWORD. The answer is one JSON
// object on standard output; an error is printed on standard error, exit 1.
package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
	"github.com/go-git/go-git/v5/storage/memory"
)

// answer is what a subcommand found out.
type answer struct {
	Refs map[string]string `json:"refs,omitempty"`
	Head string            `json:"head,omitempty"`
}

func main() {
	// Flux sends what the server advertises, multi_ack_detailed too; only thin packs stay off.
	transport.UnsupportedCapabilities = []capability.Capability{capability.ThinPack}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	result, err := run(ctx, os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "gogit:", err)
		os.Exit(1)
	}
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (*answer, error) {
	if len(args) < 2 {
		return nil, errors.New("usage: gogit lsremote|list|branch|tag|semver|commit|fetch|push ...")
	}
	arg := func(n int) string {
		if n < len(args) {
			return args[n]
		}
		return ""
	}
	switch args[0] {
	case "lsremote":
		return argoList(args[1])
	case "list":
		return fluxList(ctx, args[1], arg(2))
	case "branch":
		return clone(ctx, arg(2), &git.CloneOptions{
			URL: args[1], ReferenceName: plumbing.NewBranchReferenceName(arg(3)),
			SingleBranch: true, Depth: 1, Tags: git.NoTags,
		})
	case "tag":
		return clone(ctx, arg(2), &git.CloneOptions{
			URL: args[1], ReferenceName: plumbing.NewTagReferenceName(arg(3)),
			SingleBranch: true, Depth: 1, Tags: git.TagFollowing,
		})
	case "semver":
		return clone(ctx, arg(2), &git.CloneOptions{URL: args[1], Depth: 1, Tags: git.AllTags})
	case "commit":
		return cloneCommit(ctx, args[1], arg(2), arg(3))
	case "fetch":
		return fetch(ctx, args[1])
	case "push":
		return push(ctx, args[1], arg(2), arg(3))
	}
	return nil, fmt.Errorf("unknown subcommand %q", args[0])
}

func basic() transport.AuthMethod {
	user, password := os.Getenv("GOGIT_USER"), os.Getenv("GOGIT_PASSWORD")
	if user == "" && password == "" {
		return nil
	}
	return &githttp.BasicAuth{Username: user, Password: password}
}

// argoList is util/git/workaround.go listRemote with util/git/client.go's HTTP client.
func argoList(url string) (*answer, error) {
	client := &http.Client{
		Transport: &http.Transport{
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: os.Getenv("GOGIT_INSECURE") != ""},
			DisableKeepAlives: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       15 * time.Second,
	}
	endpoint, err := transport.NewEndpoint(url)
	if err != nil {
		return nil, err
	}
	session, err := githttp.NewClient(client).NewUploadPackSession(endpoint, basic())
	if err != nil {
		return nil, err
	}
	advertised, err := session.AdvertisedReferences()
	if err != nil {
		return nil, err
	}
	all, err := advertised.AllReferences()
	if err != nil {
		return nil, err
	}
	result := &answer{Refs: map[string]string{}}
	for name, ref := range all {
		if ref.Type() == plumbing.SymbolicReference {
			result.Refs[name.String()] = "ref: " + ref.Target().String()
		} else {
			result.Refs[name.String()] = ref.Hash().String()
		}
	}
	for name, hash := range advertised.Peeled {
		result.Refs[name+"^{}"] = hash.String()
	}
	return result, nil
}

func fluxList(ctx context.Context, url, ref string) (*answer, error) {
	remote := git.NewRemote(memory.NewStorage(), &config.RemoteConfig{
		Name: git.DefaultRemoteName, URLs: []string{url},
	})
	refs, err := remote.ListContext(ctx, &git.ListOptions{Auth: basic()})
	if err != nil {
		return nil, err
	}
	result := &answer{Refs: map[string]string{}}
	for _, r := range refs {
		if ref != "" && r.Name().String() == ref {
			result.Head = r.Hash().String()
		}
		if r.Type() == plumbing.HashReference {
			result.Refs[r.Name().String()] = r.Hash().String()
		}
	}
	if ref != "" && result.Head == "" {
		return nil, fmt.Errorf("couldn't find remote ref %q", ref)
	}
	return result, nil
}

func clone(ctx context.Context, dir string, options *git.CloneOptions) (*answer, error) {
	options.Auth = basic()
	options.RemoteName = git.DefaultRemoteName
	repository, err := git.PlainCloneContext(ctx, dir, false, options)
	if err != nil {
		return nil, err
	}
	return describe(repository)
}

func cloneCommit(ctx context.Context, url, dir, sha string) (*answer, error) {
	repository, err := git.PlainCloneContext(ctx, dir, false, &git.CloneOptions{
		URL: url, Auth: basic(), RemoteName: git.DefaultRemoteName, NoCheckout: true, Tags: git.NoTags,
	})
	if err != nil {
		return nil, err
	}
	worktree, err := repository.Worktree()
	if err != nil {
		return nil, err
	}
	if _, err := repository.CommitObject(plumbing.NewHash(sha)); err != nil {
		return nil, fmt.Errorf("failed to resolve commit object for %q: %w", sha, err)
	}
	if err := worktree.Checkout(&git.CheckoutOptions{Hash: plumbing.NewHash(sha), Force: true}); err != nil {
		return nil, err
	}
	return describe(repository)
}

func fetch(ctx context.Context, dir string) (*answer, error) {
	repository, err := git.PlainOpen(dir)
	if err != nil {
		return nil, err
	}
	err = repository.FetchContext(ctx, &git.FetchOptions{
		RemoteName: git.DefaultRemoteName, Auth: basic(), Tags: git.AllTags, Force: true,
	})
	if err != nil && !errors.Is(err, git.NoErrAlreadyUpToDate) {
		return nil, err
	}
	return describe(repository)
}

func push(ctx context.Context, url, dir, spec string) (*answer, error) {
	repository, err := git.PlainOpen(dir)
	if err != nil {
		return nil, err
	}
	err = repository.PushContext(ctx, &git.PushOptions{
		RemoteURL: url, RemoteName: git.DefaultRemoteName, Auth: basic(), RefSpecs: []config.RefSpec{config.RefSpec(spec)},
	})
	if err != nil {
		return nil, err
	}
	return describe(repository)
}

func describe(repository *git.Repository) (*answer, error) {
	result := &answer{Refs: map[string]string{}}
	if head, err := repository.Head(); err == nil {
		result.Head = head.Hash().String()
	}
	refs, err := repository.References()
	if err != nil {
		return nil, err
	}
	err = refs.ForEach(func(r *plumbing.Reference) error {
		if r.Type() == plumbing.HashReference {
			result.Refs[r.Name().String()] = r.Hash().String()
		}
		return nil
	})
	return result, err
}
