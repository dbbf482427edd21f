package watchdog

// queue is a heap.Interface of entries; the one that needs the loop first is
// at the top. An entry knows its index, so that it can be moved and removed.
type queue[K comparable] []*Entry[K]

func (q queue[K]) Len() int           { return len(q) }
func (q queue[K]) Less(i, j int) bool { return q[i].at.Before(q[j].at) }

func (q queue[K]) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

func (q *queue[K]) Push(x any) {
	e := x.(*Entry[K])
	e.index = len(*q)
	*q = append(*q, e)
}

func (q *queue[K]) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return e
}
