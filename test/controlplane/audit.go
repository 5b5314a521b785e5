package controlplane

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// AuditFilter reports whether an event is wanted.
type AuditFilter func(*auditv1.Event) bool

// Writes keeps the events that create, change or delete something.
func Writes(event *auditv1.Event) bool {
	return !slices.Contains([]string{"get", "list", "watch"}, event.Verb) && !strings.Contains(event.RequestURI, "dryRun=All") &&
		!strings.HasPrefix(event.RequestURI, "/apis/authentication.k8s.io/") // a review is a question
}

// ByUser keeps the events of one user.
func ByUser(name string) AuditFilter {
	return func(event *auditv1.Event) bool { return event.User.Username == name }
}

// OnResource keeps the events on one resource, such as "pods", or one
// subresource, such as "pods" and "resize".
func OnResource(resource, subresource string) AuditFilter {
	return func(event *auditv1.Event) bool {
		ref := event.ObjectRef
		return ref != nil && ref.Resource == resource && ref.Subresource == subresource
	}
}

// AuditMark returns the position of the next audit event, for AuditSince.
func (c *ControlPlane) AuditMark() (int64, error) {
	info, err := os.Stat(c.auditLog())
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("looking at the audit log: %w", err)
	}
	return info.Size(), nil
}

// AuditSince returns the audit events from a mark on that pass all filters, in the order in which
// their requests ended. Writes on pods, workloads, replicasets and controllerrevisions come with
// the request and the answer. An event is there as soon as its request has been answered.
func (c *ControlPlane) AuditSince(mark int64, filters ...AuditFilter) ([]auditv1.Event, error) {
	return c.AuditAbout("", mark, filters...)
}

// AuditAbout is AuditSince for events with a text in them, such as a user or a namespace. Others
// are not parsed, which is what takes long.
func (c *ControlPlane) AuditAbout(text string, mark int64, filters ...AuditFilter) ([]auditv1.Event, error) {
	data, err := c.readAuditLog(mark)
	if err != nil {
		return nil, err
	}
	var events []auditv1.Event
	for line := range bytes.Lines(data) {
		if !bytes.Contains(line, []byte(text)) {
			continue
		}
		event, err := readEvent(line)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(filters, func(filter AuditFilter) bool { return !filter(&event) }) {
			events = append(events, event)
		}
	}
	return events, nil
}

// readEvent reads one line. An API server that is killed leaves half a line, and the next one writes on behind it.
func readEvent(line []byte) (event auditv1.Event, err error) {
	begin := max(bytes.LastIndex(line, []byte(`{"kind":"Event","apiVersion":"audit.k8s.io/v1"`)), 0)
	if err := json.Unmarshal(line[begin:], &event); err != nil {
		return event, fmt.Errorf("parsing audit event: %w", err)
	}
	return event, nil
}

// readAuditLog returns the whole lines of the audit log that begin at an offset or after it.
func (c *ControlPlane) readAuditLog(offset int64) ([]byte, error) {
	file, err := os.Open(c.auditLog())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("opening audit log: %w", err)
	}
	defer func() { _ = file.Close() }()
	if _, err := file.Seek(max(offset-1, 0), io.SeekStart); err != nil {
		return nil, fmt.Errorf("seeking in audit log: %w", err)
	}
	data, err := io.ReadAll(file)
	if err != nil {
		return nil, fmt.Errorf("reading audit log: %w", err)
	}
	if offset > 0 { // a line may have been half written then
		data = data[bytes.IndexByte(data, '\n')+1:]
	}
	return data[:bytes.LastIndexByte(data, '\n')+1], nil
}
