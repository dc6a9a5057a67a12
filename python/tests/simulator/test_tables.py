"""Tables of results in other libraries: no value, type or missing value is lost."""

import pickle
import unittest

import weir
from command_line import DEMO, EXAMPLES

NAMES = ["coflows", "flows", "bins", "groups", "jobs", "demands", "links", "link_times", "schedules"]


def results():
    yield "rich", weir.compare(EXAMPLES / "dag.weir", ["fair", "saath"], flows=True, links=True)
    yield "jobs", weir.compare(EXAMPLES / "jobs.toml", ["fair", "saath"], flows=True, links=True)
    yield "services", weir.compare(EXAMPLES / "services.toml", ["fair"], flows=True, links=True)


class Tables(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tables = {f"{name} of {of}": getattr(result, name) for of, result in results() for name in NAMES}

    def test_tables_have_texts_numbers_and_missing_values(self):
        values = [value for table in self.tables.values() for column in table.columns for value in table[column]]
        self.assertEqual({type(value) for value in values}, {str, int, float, type(None)})

    def test_pyarrow(self):
        import pyarrow

        for name, table in self.tables.items():
            with self.subTest(name):
                arrow = table.to_pyarrow()
                self.assertEqual(arrow.to_pylist(), table.to_dicts())
                # Back, as a library that has only the schema and the values does.
                self.assertEqual(pyarrow.Table.from_pylist(arrow.to_pylist(), schema=arrow.schema).to_pylist(), table.to_dicts())
                types = {"uint64", "double", "dictionary<values=string, indices=int32, ordered=0>"}
                self.assertLessEqual({str(field.type) for field in arrow.schema}, types)

    def test_polars(self):
        try:
            import polars
        except ImportError as error:
            self.skipTest(str(error))
        for name, table in self.tables.items():
            with self.subTest(name):
                frame = table.to_polars()
                self.assertEqual(frame.to_dicts(), table.to_dicts())
                self.assertEqual(frame.to_arrow().to_pylist(), table.to_dicts())
                types = {polars.Categorical, polars.UInt64, polars.Float64}
                self.assertLessEqual({kind.base_type() for kind in frame.dtypes}, types)

    def test_pandas(self):
        try:
            import pandas
            import pyarrow
        except ImportError as error:
            self.skipTest(str(error))
        for name, table in self.tables.items():
            with self.subTest(name):
                frame = table.to_pandas()
                rows = [{name: None if pandas.isna(value) else value for name, value in row.items()} for row in frame.to_dict("records")]
                self.assertEqual(rows, table.to_dicts())
                back = pyarrow.Table.from_pandas(frame, preserve_index=False)
                self.assertEqual(back.to_pylist(), table.to_dicts())
                for column in table.columns:
                    if any(isinstance(value, int) for value in table[column]):
                        self.assertIn(str(frame[column].dtype), ("uint64", "UInt64"))

    def test_duckdb(self):
        try:
            import duckdb
        except ImportError as error:
            self.skipTest(str(error))
        for name, table in self.tables.items():
            with self.subTest(name):
                rows_of_weir = table
                found = duckdb.sql("SELECT * FROM rows_of_weir")
                self.assertEqual(found.columns, table.columns)
                self.assertLessEqual({str(kind) for kind in found.types}, {"VARCHAR", "UBIGINT", "DOUBLE"})
                del rows_of_weir
                rows = [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]
                self.assertEqual(rows, table.to_dicts())

    def test_a_table_is_read_several_times_and_outlives_its_result(self):
        import pyarrow

        table = weir.compare(EXAMPLES / "dag.weir", ["fair"]).coflows
        first, second = pyarrow.table(table), pyarrow.table(table)
        rows = table.to_dicts()
        del table
        self.assertEqual(first.to_pylist(), rows)
        self.assertEqual(second, first)

    def test_a_flow_has_at_most_150_bytes(self):
        flows = weir.compare(DEMO, ["fair", "saath"], flows=True).flows
        self.assertLess(flows.nbytes / len(flows), 150)

    def test_tables_that_were_not_kept_name_the_argument(self):
        result = weir.compare(DEMO, ["fair"])
        for name, argument in (("flows", "flows=True"), ("link_times", "links=True")):
            with self.assertRaisesRegex(weir.InputError, argument):
                getattr(result, name)

    def test_pickled_tables_are_equal(self):
        for name, table in self.tables.items():
            copy = pickle.loads(pickle.dumps(table))
            self.assertEqual((copy.columns, len(copy), repr(copy)), (table.columns, len(table), repr(table)), name)
            self.assertTrue(copy.to_pyarrow().schema.equals(table.to_pyarrow().schema), name)
            self.assertEqual(copy.to_dicts(), table.to_dicts(), name)

    def test_pickled_results_have_all_tables_and_no_trace(self):
        for kept in ({}, {"flows": True, "links": True}):
            result = weir.compare(EXAMPLES / "dag.weir", ["fair", "saath"], **kept)
            copy = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(result))))
            for name in ("policies", "baseline", "missing", "problem", "summary"):
                self.assertEqual(getattr(copy, name), getattr(result, name), name)
            self.assertEqual((repr(copy), copy.wide(), len(copy)), (repr(result), result.wide(), 2))
            for name in ("coflows", "bins", "groups", "jobs", "demands", "links", "schedules"):
                self.assertEqual(getattr(copy, name).to_dicts(), getattr(result, name).to_dicts(), name)
            for name in ("flows", "link_times"):
                if kept:
                    self.assertEqual(getattr(copy, name).to_dicts(), getattr(result, name).to_dicts(), name)
                else:
                    self.assertRaises(weir.InputError, getattr, copy, name)
            with self.assertRaisesRegex(weir.InputError, "pickled"):
                copy.explain(1)

    def test_table_contains_its_columns(self):
        table = weir.compare(DEMO, ["fair"]).groups
        self.assertEqual(list(table), table.columns)
        self.assertTrue("bytes" in table and "cct_s" not in table)

    def test_unknown_column_lists_the_columns(self):
        table = self.tables["coflows of rich"]
        with self.assertRaisesRegex(KeyError, "cct_s"):
            table["no"]

    def test_texts_show_values_first_and_name_empty_columns(self):
        table = self.tables["flows of rich"]
        lines = repr(table).splitlines()
        self.assertEqual(lines[0], f"weir.Table: {len(table)} rows")
        self.assertTrue(lines[1].startswith("policy  coflow  flow"), lines[1])
        self.assertIn("columns without values in these rows: ", repr(table))
        self.assertIn("<th>policy</th>", table._repr_html_())
        self.assertIn("weir.Table: 0 rows", repr(self.tables["jobs of services"]))


if __name__ == "__main__":
    unittest.main()
