package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

var pivoting = flag.Bool("pivot", false, "read rows of -groups, -txn and -offsets, of several brokers and rounds, and print them as one table")

// pivot makes one table of rows (broker, what, number): a row for what, a column for each broker, and in it the smallest,
// the median and the largest of the rounds.
func pivot(in io.Reader, out io.Writer) error {
	var brokers, rows []string
	values := map[[2]string][]string{}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		cells := strings.Split(strings.Trim(lines.Text(), "| "), " | ")
		if len(cells) != 3 {
			return fmt.Errorf("not a row of three cells: %q", lines.Text())
		}
		broker, what := cells[0], cells[1]
		if _, err := strconv.ParseFloat(cells[2], 64); err != nil {
			return fmt.Errorf("row %q: %w", what, err)
		}
		if !slices.Contains(brokers, broker) {
			brokers = append(brokers, broker)
		}
		if !slices.Contains(rows, what) {
			rows = append(rows, what)
		}
		values[[2]string{broker, what}] = append(values[[2]string{broker, what}], cells[2])
	}
	fmt.Fprintf(out, "| what | %s |\n|---|%s\n", strings.Join(brokers, " | "), strings.Repeat("---|", len(brokers)))
	for _, what := range rows {
		fmt.Fprintf(out, "| %s |", what)
		for _, b := range brokers {
			of := values[[2]string{b, what}]
			slices.SortFunc(of, func(x, y string) int {
				a, _ := strconv.ParseFloat(x, 64)
				b, _ := strconv.ParseFloat(y, 64)
				return int(min(max(1e6*(a-b), -1), 1))
			})
			switch len(of) {
			case 0:
				fmt.Fprint(out, "  |")
			case 1:
				fmt.Fprintf(out, " **%s** |", of[0])
			default:
				fmt.Fprintf(out, " %s/**%s**/%s |", of[0], of[len(of)/2], of[len(of)-1])
			}
		}
		fmt.Fprintln(out)
	}
	return lines.Err()
}
