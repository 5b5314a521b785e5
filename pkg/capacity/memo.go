package capacity

// memo keeps what was read, by what was asked for.
type memo[V any] map[string]V

// get returns what is kept under the key, or else reads it. An error is not kept: the next question reads again.
func (m *memo[V]) get(key string, read func() (V, error)) (V, error) {
	if v, kept := (*m)[key]; kept {
		return v, nil
	}
	v, err := read()
	if err != nil {
		return v, err
	}
	if *m == nil {
		*m = memo[V]{}
	}
	(*m)[key] = v
	return v, nil
}
