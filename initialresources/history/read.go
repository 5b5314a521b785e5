package history

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/DataDog/sketches-go/ddsketch"
	prometheus "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/inplace-rollout/inplace-rollout/initialresources/estimate"
	"github.com/inplace-rollout/inplace-rollout/pkg/promapi"
)

// reader reads a piece of history.
type reader struct {
	Options
	client   *promapi.Client
	cadvisor source
	states   source   // kube-state-metrics
	narrow   []string // matchers that all but one selector have, too: of the namespaces
	samples  int      // that are asked for at once, about
}

// samplesAtOnce keeps an answer from taking more than some 300 MB while it is read.
const samplesAtOnce = 2_000_000

func newReader(o Options) (*reader, error) {
	client, err := promapi.New(o.Server, o.Observe)
	if err != nil {
		return nil, err
	}
	r := &reader{Options: o, client: client, samples: samplesAtOnce}
	if r.cadvisor, err = newSource("--cadvisor-matcher", o.Matchers, o.CAdvisor); err != nil {
		return nil, err
	}
	if r.states, err = newSource("--kube-state-metrics-matcher", o.Matchers, o.StateMetrics); err != nil {
		return nil, err
	}
	if len(o.Namespaces) > 0 {
		r.narrow = []string{promapi.AnyOf("namespace", o.Namespaces)}
	}
	for _, name := range []string{
		o.CPU, o.Memory, o.Info, o.InitInfo, o.Restarts, o.InitRestarts, o.LastTerminated, o.InitLastTerminated, o.Terminated, o.Completion,
	} {
		if !model.LegacyValidation.IsValidMetricName(name) {
			return nil, fmt.Errorf("%q is not a name of a metric", name)
		}
	}
	switch {
	case o.Resolution < time.Second || quarter*time.Second%o.Resolution != 0 || o.Resolution%time.Second != 0:
		return nil, fmt.Errorf("the resolution is %s: want whole seconds that divide six hours", o.Resolution)
	case o.Range < o.Resolution || o.Range%time.Second != 0:
		return nil, fmt.Errorf("the range is %s: want whole seconds, and no less than the resolution", o.Range)
	case o.Window <= 0 || o.Lag < 0 || o.Timeout <= 0:
		return nil, fmt.Errorf("want a positive window (%s) and timeout of queries (%s), and a lag (%s) of 0 or more", o.Window, o.Timeout, o.Lag)
	}
	return r, nil
}

func newSource(flag string, common, own []string) (source, error) {
	all, err := parseMatchers(common)
	if err != nil {
		return source{}, err
	}
	matchers, err := parseMatchers(own)
	return source{matchers: matchers, flag: flag, common: all}, err
}

// parseMatchers writes matchers as Prometheus does. Empty ones match all.
func parseMatchers(texts []string) ([]string, error) {
	var matchers []string
	for _, text := range texts {
		if text == "" {
			continue
		}
		matcher, err := promapi.ParseMatcher(text)
		if err != nil {
			return nil, fmt.Errorf("%q is not a matcher, such as cluster=\"eu-1\": %w", text, err)
		}
		matchers = append(matchers, matcher)
	}
	return matchers, nil
}

// container is one of a pod, as all metrics name it. Pods with the same name follow each other.
type container struct{ namespace, pod, name string }

func containerOf(metric model.Metric) container {
	return container{string(metric["namespace"]), string(metric["pod"]), string(metric["container"])}
}

// harvest is what a piece has yielded.
type harvest map[bin]*gathered

type bin struct {
	key     estimate.Key
	quarter int64
}

type gathered struct {
	cpu, memory *ddsketch.DDSketch
	kills       int
}

// read reads a piece. The newest must have something of everything: what nobody scrapes now
// is not taken for unused.
func (r *reader) read(ctx context.Context, piece span, newest bool) (harvest, error) {
	found := harvest{}
	selections, err := r.selections(ctx, piece)
	if err != nil {
		return nil, err
	}
	whole := len(r.Images) == 0 && len(r.Namespaces) == 0 // a part of the cluster may be empty
	if newest && !whole {
		if err := r.scraped(ctx, piece); err != nil {
			return nil, err
		}
	}
	for _, where := range selections {
		if err := r.readSelection(ctx, piece, where, newest && whole, found); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// readSelection reads what the matchers select of a piece.
func (r *reader) readSelection(ctx context.Context, piece span, where []string, complain bool, found harvest) error {
	runs, err := r.runs(ctx, piece, where)
	if err != nil {
		return err
	}
	if complain && len(runs) == 0 {
		return r.none(ctx, r.states, r.Info, ofInfo, piece)
	}
	for _, of := range []struct{ query, expression, metric, cause string }{
		{QueryCPU, r.cpu(where), r.CPU, "check that cAdvisor is scraped, and at least twice in " + duration(r.Range)},
		{QueryMemory, r.memory(where), r.Memory, ofMemory},
		{QueryKills, r.kills(where), "", ""},
	} {
		series, known := 0, 0
		for _, part := range r.parts(piece, len(runs)) {
			matrix, err := r.client.Range(ctx, of.query, of.expression, r.steps(part))
			if err != nil {
				return err
			}
			series, known = series+len(matrix), known+r.take(matrix, of.query, runs, found)
		}
		switch {
		case !complain || of.metric == "" || known > 0:
		case series == 0:
			return r.none(ctx, r.cadvisor, of.metric, of.cause, piece)
		default:
			return fmt.Errorf("%s and %s have no container in common: check that both have the labels namespace, pod and container. The scrape of kube-state-metrics needs honor_labels", r.Info, of.metric)
		}
	}
	return nil
}

// take adds what was used to what was found, and counts the series of containers that are known.
func (r *reader) take(matrix model.Matrix, query string, runs map[container]run, found harvest) (known int) {
	for _, series := range matrix {
		of := containerOf(series.Metric)
		run, ok := runs[of]
		if !ok {
			continue
		}
		known++
		for _, sample := range series.Values {
			at := sample.Timestamp.Unix()
			if image, ok := run.at(at); ok && r.wants(image) {
				found.add(r.key(of, image), query, at, float64(sample.Value))
			}
		}
	}
	return known
}

// steps are those of a piece.
func (r *reader) steps(piece span) prometheus.Range {
	return prometheus.Range{Start: time.Unix(piece.from, 0), End: time.Unix(piece.to, 0).Add(-r.Resolution), Step: r.Resolution}
}

// parts cuts a piece into those that are asked for at once, for so many containers.
func (r *reader) parts(piece span, containers int) []span {
	length := max(1, int64(r.samples/max(containers, 1))) * int64(r.Resolution/time.Second)
	var all []span
	for from := piece.from; from < piece.to; from += length {
		all = append(all, span{from, min(from+length, piece.to)})
	}
	return all
}

func (h harvest) add(key estimate.Key, query string, at int64, value float64) {
	of := bin{key, at / quarter * quarter}
	g := h[of]
	if g == nil {
		g = &gathered{}
		h[of] = g
	}
	var sketch **ddsketch.DDSketch
	switch query {
	case QueryKills:
		g.kills++
		return
	case QueryCPU:
		sketch = &g.cpu
	default:
		sketch = &g.memory
	}
	if *sketch == nil {
		*sketch = newSketch()
	}
	if value < negligible {
		value = 0
	}
	_ = (*sketch).Add(value) // it takes all but infinity and what is no number
}

func (r *reader) key(of container, image estimate.Image) estimate.Key {
	key := estimate.Key{Namespace: of.namespace, Image: image}
	if r.ByContainer {
		key.Role = of.name
	}
	return key
}

// run says which image a container runs when.
type run struct {
	image estimate.Image
	// changes has the image at each time, if there is more than one in the piece. Around a
	// change, when nobody knows whose a sample is, it has none.
	changes map[int64]estimate.Image
}

func (r run) at(t int64) (estimate.Image, bool) {
	if r.changes == nil {
		return r.image, true
	}
	image := r.changes[t]
	return image, image != estimate.Image{}
}

// runs asks which images run in a piece. For most containers it is one: the times are asked
// for only where there are two or more.
func (r *reader) runs(ctx context.Context, piece span, where []string) (map[container]run, error) {
	vector, err := r.client.Instant(ctx, QueryInfo, r.runners(r.within(piece), where), time.Unix(piece.to, 0))
	if err != nil {
		return nil, err
	}
	runs, changing := map[container]run{}, map[string]bool{}
	for _, sample := range vector {
		image, ok := imageOf(sample.Metric)
		if !ok {
			continue
		}
		of := containerOf(sample.Metric)
		if before, there := runs[of]; there && before.image != image {
			changing[of.pod] = true
			runs[of] = run{image: before.image, changes: map[int64]estimate.Image{}}
		} else if !there {
			runs[of] = run{image: image}
		}
	}
	for pods := range slices.Chunk(slices.Sorted(maps.Keys(changing)), atOnce) {
		if err := r.changes(ctx, piece, slices.Concat(where, []string{promapi.AnyOf("pod", pods)}), runs); err != nil {
			return nil, err
		}
	}
	return runs, nil
}

// changes asks when which image runs, where there is more than one.
func (r *reader) changes(ctx context.Context, piece span, where []string, runs map[container]run) error {
	matrix, err := r.client.Range(ctx, QueryInfo, r.runners(r.doubt(), where), r.steps(piece))
	if err != nil {
		return err
	}
	for _, series := range matrix {
		image, ok := imageOf(series.Metric)
		changes := runs[containerOf(series.Metric)].changes
		if !ok || changes == nil {
			continue
		}
		for _, sample := range series.Values {
			at := sample.Timestamp.Unix()
			if before, there := changes[at]; there && before != image {
				changes[at] = estimate.Image{}
			} else {
				changes[at] = image
			}
		}
	}
	return nil
}

// within is how far back from the end of a piece there are samples that count in it.
func (r *reader) within(piece span) time.Duration {
	return time.Duration(piece.to-piece.from)*time.Second + r.doubt()
}

// doubt is for how long a container that is gone may still be seen in the samples, or one
// that is there not in kube-state-metrics'.
func (r *reader) doubt() time.Duration { return 2 * r.Range }

// imageOf is the image as the pod's spec has it. Older versions of kube-state-metrics know
// only what the runtime calls it, which has no name at times.
func imageOf(metric model.Metric) (estimate.Image, bool) {
	name := metric["image_spec"]
	if name == "" {
		name = metric["image"]
	}
	image, err := estimate.ParseImage(string(name))
	return image, err == nil
}

// atOnce is how many pods are named in a query.
const atOnce = 100

// selections are the matchers that select all that is to be read: none, if that is all there
// is, or those of the pods that run the images in question, in handy numbers.
func (r *reader) selections(ctx context.Context, piece span) ([][]string, error) {
	if len(r.Images) == 0 {
		return [][]string{r.narrow}, nil
	}
	vector, err := r.client.Instant(ctx, QueryInfo, r.runners(r.within(piece), r.imageMatchers()...), time.Unix(piece.to, 0))
	if err != nil {
		return nil, err
	}
	pods := map[string]bool{}
	for _, sample := range vector {
		image, ok := imageOf(sample.Metric)
		if ok && r.wants(image) {
			pods[string(sample.Metric["pod"])] = true
		}
	}
	var selections [][]string
	for some := range slices.Chunk(slices.Sorted(maps.Keys(pods)), atOnce) {
		selections = append(selections, slices.Concat(r.narrow, []string{promapi.AnyOf("pod", some)}))
	}
	return selections, nil
}

// wants reports whether an image is to be read. Its pods have others, too.
func (r *reader) wants(image estimate.Image) bool {
	return len(r.Images) == 0 || slices.ContainsFunc(r.Images, func(i estimate.Image) bool { return i.Name == image.Name })
}

// imageMatchers select the images, in each of the two labels that may name them, and perhaps
// others: the registry, and some of the path, may be left out in a spec.
func (r *reader) imageMatchers() [][]string {
	var names []string
	for _, image := range r.Images {
		names = append(names, regexp.QuoteMeta(image.Name[strings.LastIndex(image.Name, "/")+1:]))
	}
	pattern := fmt.Sprintf("(.*/)?(%s)([:@].*)?", strings.Join(names, "|"))
	return [][]string{
		slices.Concat(r.narrow, []string{fmt.Sprintf("image_spec=~%q", pattern)}),
		slices.Concat(r.narrow, []string{`image_spec=""`, fmt.Sprintf("image=~%q", pattern)}),
	}
}

// scraped is an error if nobody scrapes what is needed.
func (r *reader) scraped(ctx context.Context, piece span) error {
	for _, needed := range []struct {
		source
		metric, cause string
	}{{r.states, r.Info, ofInfo}, {r.cadvisor, r.Memory, ofMemory}} {
		vector, err := r.client.Instant(ctx, QueryInfo, "group("+needed.selector(needed.metric)+")", time.Unix(piece.to, 0))
		if err != nil {
			return err
		}
		if len(vector) == 0 {
			return r.none(ctx, needed.source, needed.metric, needed.cause, piece)
		}
	}
	return nil
}

// Why there may be none.
const (
	ofInfo   = "check that kube-state-metrics is scraped"
	ofMemory = "check that cAdvisor is scraped"
)

// none says that a source has nothing of a metric, and which jobs have it, one of which may be it.
func (r *reader) none(ctx context.Context, from source, metric, cause string, piece span) error {
	text := "Prometheus has no series of " + from.selector(metric) + " now: " + cause
	if len(from.matchers) == 0 {
		return errors.New(text)
	}
	vector, err := r.client.Instant(ctx, QueryInfo, from.elsewhere(metric), time.Unix(piece.to, 0))
	if err != nil {
		return err
	}
	var jobs []string
	for _, sample := range vector {
		jobs = append(jobs, fmt.Sprintf("job=%q", string(sample.Metric["job"])))
	}
	if slices.Sort(jobs); len(jobs) > 0 {
		text += fmt.Sprintf(". There are some with %s: if you trust them, name them by %s", strings.Join(jobs, ", "), from.flag)
	}
	return errors.New(text)
}
