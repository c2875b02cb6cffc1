-- One query to a line; after "-- spark: " what Spark is asked instead. ORDER BY at the end: the order counts.

-- Aggregates
SELECT symbol, COUNT(*) AS n, COUNT(qty) AS q, COUNT(lot, fee) AS both, COUNT(DISTINCT lot) AS d, COUNT(DISTINCT lot, ok) AS dd FROM trades GROUP BY symbol
SELECT symbol, SUM(tiny) AS a, SUM(lot) AS b, SUM(qty) AS c, SUM(fee) AS d, SUM(wide) AS e FROM trades GROUP BY symbol
SELECT ok, AVG(tiny) AS a, AVG(lot) AS b, AVG(qty) AS c, AVG(fee) AS d, AVG(wide) AS e FROM trades GROUP BY ok
SELECT lot, SUM(small) AS a, AVG(small) AS b FROM trades GROUP BY lot
SELECT symbol, MIN(price) AS a, MAX(price) AS b, MIN(small) AS c, MAX(small) AS d FROM trades WHERE price <> 0 GROUP BY symbol
SELECT lot, MIN(symbol) AS a, MAX(symbol) AS b, MIN(day) AS c, MAX(ts) AS d, MIN(note) AS e, MAX(ok) AS f, MIN(fee) AS g, MAX(wide) AS h, MIN(tiny) AS i FROM trades GROUP BY lot
SELECT COUNT(*) AS n, SUM(qty) AS s, AVG(fee) AS a, MIN(symbol) AS m, MAX(price) AS x, COUNT(DISTINCT symbol) AS d FROM nothing
SELECT symbol, COUNT(*) AS n FROM nothing GROUP BY symbol
SELECT SUM(DISTINCT lot) AS a, AVG(DISTINCT tiny) AS b, SUM(DISTINCT fee) AS c, COUNT(DISTINCT price) AS d, COUNT(DISTINCT small) AS e FROM trades
SELECT COUNT(DISTINCT price, ok) AS n FROM trades
SELECT symbol, COUNT_IF(ok) AS a, BOOL_AND(ok) AS b, BOOL_OR(ok) AS c, EVERY(ok) AS d, SOME(ok) AS e FROM trades GROUP BY symbol
SELECT symbol, BIT_AND(lot) AS a, BIT_OR(lot) AS b, BIT_XOR(tiny) AS c, BIT_OR(qty) AS d FROM trades GROUP BY symbol
SELECT symbol, STDDEV(lot) AS a, STDDEV_POP(lot) AS b, VARIANCE(lot) AS c, VAR_POP(lot) AS d, STDDEV_SAMP(fee) AS e, STD(tiny) AS f, VAR_SAMP(qty) AS g FROM trades GROUP BY symbol
SELECT STDDEV(lot) AS a, VARIANCE(fee) AS b, VAR_POP(price) AS c FROM nothing
SELECT id, STDDEV(lot) AS a, STDDEV_POP(lot) AS b FROM trades WHERE id < 3 GROUP BY id
SELECT STDDEV(price) AS a, VAR_POP(price) AS b FROM trades
SELECT symbol, MIN_BY(id, ts) AS a, MAX_BY(id, ts) AS b, MAX_BY(fee, qty) AS c, MIN_BY(symbol, id) AS d FROM trades GROUP BY symbol
SELECT symbol, SUM(qty) FILTER (WHERE ok) AS a, COUNT(*) FILTER (WHERE lot > 1) AS b, AVG(fee) FILTER (WHERE fee > 0) AS c, COUNT(DISTINCT lot) FILTER (WHERE ok IS NOT NULL) AS d FROM trades GROUP BY symbol
SELECT symbol, SUM(qty / (lot - 1)) FILTER (WHERE lot > 1) AS a FROM trades GROUP BY symbol
SELECT symbol, SUM(qty / (lot - 1)) AS a FROM trades GROUP BY symbol
SELECT SUM(qty * 1000000000000) AS a FROM trades WHERE id > 35
SELECT SUM(CAST(9223372036854775807 AS BIGINT)) AS a FROM trades
SELECT SUM(CAST(99999999999999999999999999999999999999 AS DECIMAL(38, 0))) AS a FROM trades
SELECT AVG(CAST(99999999999999999999999999999999999999 AS DECIMAL(38, 0))) AS a FROM trades WHERE id = 1
SELECT AVG(CAST(1 AS DECIMAL(38, 30))) AS a, SUM(CAST(0.5 AS DECIMAL(5, 5))) AS b FROM trades WHERE id < 3
SELECT AVG(CAST(id AS DECIMAL(36, 2)) / 7) AS a FROM trades
SELECT MEAN(lot) AS a, MEAN(fee) AS b FROM trades

-- FIRST and LAST are by event time, then by the place in the log
SELECT symbol, FIRST(id) AS a, LAST(id) AS b, ANY_VALUE(lot) AS c, FIRST_VALUE(fee) AS d, LAST_VALUE(ok) AS e FROM trades GROUP BY symbol
-- spark: SELECT symbol, min_by(id, struct(ts, _lsn)) AS a, max_by(id, struct(ts, _lsn)) AS b, min_by(lot, struct(ts, _lsn)) AS c, min_by(fee, struct(ts, _lsn)) AS d, max_by(ok, struct(ts, _lsn)) AS e FROM trades GROUP BY symbol
SELECT symbol, FIRST(lot) IGNORE NULLS AS a, LAST(qty, TRUE) AS b, FIRST(id) FILTER (WHERE ok) AS c FROM trades GROUP BY symbol
-- spark: SELECT symbol, min_by(lot, struct(ts, _lsn)) FILTER (WHERE lot IS NOT NULL) AS a, max_by(qty, struct(ts, _lsn)) FILTER (WHERE qty IS NOT NULL) AS b, min_by(id, struct(ts, _lsn)) FILTER (WHERE ok) AS c FROM trades GROUP BY symbol
SELECT symbol, COLLECT_LIST(lot) AS a, ARRAY_AGG(id) AS b, COLLECT_LIST(lot) FILTER (WHERE id < 0) AS c FROM trades GROUP BY symbol
-- spark: SELECT symbol, transform(array_sort(collect_list(struct(_lsn, lot)) FILTER (WHERE lot IS NOT NULL)), x -> x.lot) AS a, transform(array_sort(collect_list(struct(_lsn, id))), x -> x.id) AS b, array_sort(collect_list(lot) FILTER (WHERE id < 0)) AS c FROM trades GROUP BY symbol

-- Groups
SELECT price, COUNT(*) AS n FROM trades GROUP BY price
SELECT small, price, MIN(id) AS n FROM trades GROUP BY small, price
SELECT symbol AS s, lot + 1 AS l, COUNT(*) AS n FROM trades GROUP BY symbol, lot + 1
SELECT UPPER(symbol) AS s, COUNT(*) AS n FROM trades GROUP BY 1
SELECT UPPER(symbol) AS s, COUNT(*) AS n FROM trades GROUP BY s
SELECT symbol FROM trades GROUP BY symbol, lot
SELECT symbol, SUM(lot) AS s FROM trades GROUP BY symbol HAVING SUM(lot) > 10
SELECT symbol, SUM(lot) AS s FROM trades GROUP BY symbol HAVING s > 10 AND COUNT(*) < 9
SELECT SUM(lot) AS s FROM trades HAVING COUNT(*) > 1000
SELECT 1 AS one FROM trades HAVING COUNT(*) > 1
SELECT symbol, SUM(lot) * 2 + COUNT(*) AS s, UPPER(symbol) || '!' AS u FROM trades GROUP BY symbol
SELECT YEAR(day) AS y, QUARTER(day) AS q, COUNT(*) AS n FROM trades GROUP BY YEAR(day), QUARTER(day)
SELECT CASE WHEN lot > 1 THEN 'big' WHEN lot IS NULL THEN 'none' ELSE 'small' END AS c, COUNT(*) AS n FROM trades GROUP BY CASE WHEN lot > 1 THEN 'big' WHEN lot IS NULL THEN 'none' ELSE 'small' END
SELECT ok, note, COUNT(*) AS n FROM trades GROUP BY ok, note
SELECT pair.a AS a, COUNT(*) AS n FROM trades GROUP BY pair.a
SELECT DISTINCT symbol, lot FROM trades
SELECT DISTINCT price FROM trades
SELECT DISTINCT small, ok FROM trades ORDER BY small DESC, ok
SELECT DISTINCT COUNT(*) AS n FROM trades GROUP BY symbol ORDER BY n

-- Windows over event time
SELECT TUMBLE_START(ts, INTERVAL '1 minute') AS s, TUMBLE_END(ts, INTERVAL '1 minute') AS e, symbol, COUNT(*) AS n, SUM(qty) AS q, FIRST(id) AS f, LAST(id) AS l FROM trades GROUP BY symbol, TUMBLE(ts, INTERVAL '1 minute')
-- spark: SELECT window.start AS s, window.end AS e, symbol, COUNT(*) AS n, SUM(qty) AS q, min_by(id, struct(ts, _lsn)) AS f, max_by(id, struct(ts, _lsn)) AS l FROM trades GROUP BY symbol, window(ts, '1 minute')
SELECT window_start AS s, COUNT(*) AS n FROM trades GROUP BY TUMBLE(ts, INTERVAL '7 seconds', INTERVAL '3 seconds') HAVING COUNT(*) > 0
-- spark: SELECT window.start AS s, COUNT(*) AS n FROM trades GROUP BY window(ts, '7 seconds', '7 seconds', '3 seconds')
SELECT HOP_START(ts, INTERVAL '20 seconds', INTERVAL '1 minute') AS s, HOP_END(ts, INTERVAL '20 seconds', INTERVAL '1 minute') AS e, symbol, COUNT(*) AS n, LAST(id) AS l FROM trades GROUP BY HOP(ts, INTERVAL '20 seconds', INTERVAL '1 minute'), symbol
-- spark: SELECT window.start AS s, window.end AS e, symbol, COUNT(*) AS n, max_by(id, struct(ts, _lsn)) AS l FROM trades GROUP BY window(ts, '1 minute', '20 seconds'), symbol
SELECT HOP_START(ts) AS s, HOP_END(ts, INTERVAL '20 seconds') AS e, COUNT(*) AS n FROM trades GROUP BY HOP(ts, INTERVAL '20 seconds', INTERVAL '1 minute')
-- spark: SELECT window.start AS s, window.end AS e, COUNT(*) AS n FROM trades GROUP BY window(ts, '1 minute', '20 seconds')
SELECT TUMBLE_START(ts) AS s, WINDOW_END(ts) AS e, COUNT(*) AS n FROM trades GROUP BY TUMBLE(ts, INTERVAL '7 seconds', INTERVAL '3 seconds')
-- spark: SELECT window.start AS s, window.end AS e, COUNT(*) AS n FROM trades GROUP BY window(ts, '7 seconds', '7 seconds', '3 seconds')
SELECT TUMBLE_START(ts, INTERVAL '1 minute') AS s, COUNT(*) AS n FROM trades GROUP BY 1 ORDER BY 1
-- spark: SELECT window.start AS s, COUNT(*) AS n FROM trades GROUP BY window(ts, '1 minute') ORDER BY 1
SELECT SESSION_START(ts) AS s, SESSION_END(ts) AS e, COUNT(*) AS n FROM trades GROUP BY SESSION_START(ts, INTERVAL '3 seconds')
-- spark: SELECT session_window.start AS s, session_window.end AS e, COUNT(*) AS n FROM trades GROUP BY session_window(ts, '3 seconds')
SELECT window_start AS s, window_end AS e, SUM(lot) AS n FROM trades WHERE ok GROUP BY HOP(ts, INTERVAL '25 seconds', INTERVAL '1 minute', INTERVAL '4 seconds')
-- spark: SELECT window.start AS s, window.end AS e, SUM(lot) AS n FROM trades WHERE ok GROUP BY window(ts, '1 minute', '25 seconds', '4 seconds')
SELECT SESSION_START(ts, INTERVAL '3 seconds') AS s, SESSION_END(ts, INTERVAL '3 seconds') AS e, COUNT(*) AS n, FIRST(id) AS f FROM trades GROUP BY SESSION(ts, INTERVAL '3 seconds')
-- spark: SELECT session_window.start AS s, session_window.end AS e, COUNT(*) AS n, min_by(id, struct(ts, _lsn)) AS f FROM trades GROUP BY session_window(ts, '3 seconds')
SELECT symbol, window_start AS s, window_end AS e, COUNT(*) AS n, SUM(qty) AS q FROM trades GROUP BY symbol, SESSION(ts, INTERVAL '9 seconds')
-- spark: SELECT symbol, session_window.start AS s, session_window.end AS e, COUNT(*) AS n, SUM(qty) AS q FROM trades GROUP BY symbol, session_window(ts, '9 seconds')
SELECT CUMULATE_START(ts, INTERVAL '20 seconds', INTERVAL '1 minute') AS s, CUMULATE_END(ts, INTERVAL '20 seconds', INTERVAL '1 minute') AS e, COUNT(*) AS n, SUM(qty) AS q FROM trades GROUP BY CUMULATE(ts, INTERVAL '20 seconds', INTERVAL '1 minute')
-- spark: SELECT window(ts, '1 minute').start AS s, e, COUNT(*) AS n, SUM(qty) AS q FROM (SELECT *, explode(filter(sequence(window(ts, '1 minute').start + INTERVAL '20' SECOND, window(ts, '1 minute').end, INTERVAL '20' SECOND), x -> x > ts)) AS e FROM trades) GROUP BY window(ts, '1 minute'), e
SELECT TUMBLE_START(day, INTERVAL '365 days') AS s, COUNT(*) AS n FROM trades GROUP BY TUMBLE(day, INTERVAL '365 days') ORDER BY s
-- spark: SELECT window.start AS s, COUNT(*) AS n FROM trades GROUP BY window(CAST(day AS TIMESTAMP), '365 days') ORDER BY s
SELECT t.symbol, s.name, TUMBLE_START(t.ts, INTERVAL '1 hour') AS h, COUNT(*) AS n FROM trades AS t JOIN symbols AS s ON t.symbol = s.symbol GROUP BY t.symbol, s.name, TUMBLE(t.ts, INTERVAL '1 hour')
-- spark: SELECT t.symbol, s.name, window.start AS h, COUNT(*) AS n FROM trades AS t JOIN symbols AS s ON t.symbol = s.symbol GROUP BY t.symbol, s.name, window(t.ts, '1 hour')

-- Joins
SELECT t.id, s.name FROM trades AS t JOIN symbols AS s ON t.symbol = s.symbol
SELECT t.id, s.name, s.rank FROM trades AS t LEFT JOIN symbols AS s ON t.symbol = s.symbol AND s.rank > 1
SELECT s.symbol, v.venue, v.big FROM symbols AS s RIGHT JOIN venues AS v ON s.symbol = v.symbol
SELECT s.symbol, v.symbol AS other, v.venue FROM symbols AS s FULL JOIN venues AS v ON s.symbol = v.symbol
SELECT symbol, name, venue FROM symbols FULL JOIN venues USING (symbol)
SELECT symbol, name, venue FROM symbols LEFT JOIN venues USING (symbol)
SELECT symbol, name, venue FROM symbols RIGHT JOIN venues USING (symbol)
SELECT * FROM symbols JOIN venues USING (symbol)
SELECT * FROM symbols FULL JOIN venues USING (symbol) ORDER BY symbol, venue
SELECT a.symbol, b.symbol AS other FROM symbols AS a CROSS JOIN symbols AS b
SELECT a.symbol, v.venue FROM symbols AS a, venues AS v WHERE a.symbol = v.symbol
SELECT t.id, s.symbol FROM trades AS t JOIN symbols AS s ON t.price = s.rate
SELECT t.id, s.symbol FROM trades AS t JOIN symbols AS s ON t.lot < s.rank
SELECT t.id, s.symbol FROM trades AS t JOIN symbols AS s ON t.fee > s.rank WHERE t.id < 20
SELECT * FROM symbols LEFT SEMI JOIN venues ON symbols.symbol = venues.symbol
SELECT * FROM symbols LEFT ANTI JOIN venues ON symbols.symbol = venues.symbol
SELECT * FROM symbols LEFT SEMI JOIN venues USING (symbol)
SELECT a.id, b.id AS other FROM trades AS a JOIN trades AS b ON a.id = b.id + 1 AND a.symbol <=> b.symbol
SELECT s.name, SUM(t.qty) AS q FROM symbols AS s LEFT JOIN trades AS t ON t.symbol = s.symbol GROUP BY s.name

-- Subqueries and WITH
SELECT id FROM trades WHERE symbol IN (SELECT symbol FROM symbols WHERE rank > 1)
SELECT id FROM trades WHERE symbol NOT IN (SELECT symbol FROM symbols)
SELECT id FROM trades WHERE symbol NOT IN (SELECT symbol FROM venues)
SELECT id FROM trades WHERE lot IN (SELECT big FROM venues)
SELECT symbol FROM symbols AS s WHERE EXISTS (SELECT 1 FROM trades AS t WHERE t.symbol = s.symbol AND t.lot = s.rank)
SELECT symbol FROM symbols AS s WHERE NOT EXISTS (SELECT 1 FROM trades AS t WHERE t.symbol = s.symbol)
SELECT symbol, (SELECT COUNT(*) FROM trades AS t WHERE t.symbol = s.symbol) AS n FROM symbols AS s
SELECT symbol, (SELECT MAX(qty) FROM trades AS t WHERE t.symbol = s.symbol) AS n FROM symbols AS s
SELECT id FROM trades WHERE qty > (SELECT AVG(qty) FROM trades)
SELECT id, (SELECT rank FROM symbols) AS r FROM trades
SELECT (SELECT rank FROM symbols WHERE symbol = 'none') AS r
SELECT s, n FROM (SELECT symbol AS s, COUNT(*) AS n FROM trades GROUP BY symbol) AS q WHERE n > 5
SELECT MAX(n) AS m FROM (SELECT COUNT(*) AS n FROM trades GROUP BY symbol)
WITH a AS (SELECT symbol, SUM(qty) AS q FROM trades GROUP BY symbol), b AS (SELECT MAX(q) AS m FROM a) SELECT a.symbol, a.q, b.m FROM a JOIN b ON a.q = b.m
WITH a(x, y) AS (SELECT symbol, rank FROM symbols) SELECT l.x, r.y FROM a AS l JOIN a AS r ON l.y = r.y
SELECT x.a + 1 AS b FROM (SELECT lot AS a, symbol FROM trades WHERE ok) AS x WHERE x.symbol = 'AAPL'
SELECT c, d FROM (SELECT symbol, rank FROM symbols) AS t(c, d)

-- UNION and its kin
SELECT symbol FROM trades UNION SELECT symbol FROM symbols
SELECT symbol FROM trades UNION ALL SELECT symbol FROM venues
SELECT lot AS a FROM trades UNION SELECT qty FROM trades
SELECT lot AS a, 'x' AS b FROM trades WHERE id < 5 UNION ALL SELECT fee, symbol FROM trades WHERE id < 5
SELECT tiny AS a FROM trades UNION SELECT price FROM trades
SELECT symbol FROM trades EXCEPT SELECT symbol FROM symbols
SELECT symbol FROM trades EXCEPT ALL SELECT symbol FROM symbols
SELECT symbol FROM trades INTERSECT SELECT symbol FROM venues
SELECT symbol FROM trades INTERSECT ALL SELECT symbol FROM trades WHERE ok
SELECT symbol FROM trades MINUS SELECT symbol FROM venues
SELECT price FROM trades INTERSECT SELECT rate FROM symbols
SELECT symbol AS s FROM symbols UNION ALL SELECT venue FROM venues ORDER BY s DESC LIMIT 4
SELECT rank AS r, symbol FROM symbols UNION SELECT 7, 'z' ORDER BY 1 NULLS LAST, 2 DESC OFFSET 1

-- Window functions
SELECT id, ROW_NUMBER() OVER (PARTITION BY symbol ORDER BY id DESC) AS a, RANK() OVER (ORDER BY lot) AS b, DENSE_RANK() OVER (ORDER BY lot DESC) AS c, NTILE(5) OVER (ORDER BY id) AS d FROM trades
SELECT id, PERCENT_RANK() OVER (PARTITION BY symbol ORDER BY lot) AS a, CUME_DIST() OVER (PARTITION BY symbol ORDER BY lot) AS b FROM trades
SELECT id, LAG(qty) OVER (PARTITION BY symbol ORDER BY id) AS a, LEAD(lot, 2) OVER (ORDER BY id) AS b, LAG(lot, 1, 0) OVER (ORDER BY id) AS c, LEAD(fee, 1, 0) OVER (ORDER BY id) AS d FROM trades
SELECT id, LAG(lot) IGNORE NULLS OVER (ORDER BY id) AS a, FIRST_VALUE(lot) IGNORE NULLS OVER (PARTITION BY ok ORDER BY id DESC) AS b FROM trades
SELECT id, FIRST_VALUE(id) OVER (PARTITION BY symbol ORDER BY ts, id) AS a, LAST_VALUE(id) OVER (PARTITION BY symbol ORDER BY id) AS b, LAST_VALUE(id) OVER (PARTITION BY symbol ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS c, NTH_VALUE(id, 2) OVER (PARTITION BY symbol ORDER BY id) AS d FROM trades
SELECT id, SUM(qty) OVER (PARTITION BY symbol ORDER BY id) AS a, SUM(lot) OVER (PARTITION BY symbol ORDER BY lot) AS b, COUNT(*) OVER () AS c, AVG(fee) OVER (ORDER BY id ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING) AS d, MIN(symbol) OVER (ORDER BY id ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING) AS e FROM trades
SELECT id, SUM(lot) FILTER (WHERE ok) OVER (ORDER BY id) AS a FROM trades
SELECT id, COUNT(*) OVER (PARTITION BY price) AS a, COUNT(*) OVER (ORDER BY price DESC NULLS FIRST) AS b, RANK() OVER (ORDER BY price) AS c FROM trades
SELECT symbol, SUM(lot) AS s, RANK() OVER (ORDER BY SUM(lot) DESC) AS r, SUM(SUM(lot)) OVER () AS t FROM trades GROUP BY symbol
SELECT symbol, s FROM (SELECT symbol, lot AS s, ROW_NUMBER() OVER (PARTITION BY symbol ORDER BY id) AS r FROM trades) WHERE r = 1
SELECT id, id - LAG(id) OVER (ORDER BY id) AS d, RANK() OVER (ORDER BY lot) AS r FROM trades ORDER BY r, id

-- Order and limits
SELECT id, price FROM trades ORDER BY price, id
SELECT id, price FROM trades ORDER BY price DESC, id DESC
SELECT id, symbol FROM trades ORDER BY symbol DESC NULLS FIRST, id LIMIT 7
SELECT id, symbol FROM trades ORDER BY symbol ASC NULLS LAST, id LIMIT 5 OFFSET 3
SELECT id AS lot, lot AS x FROM trades ORDER BY lot LIMIT 3
SELECT symbol, COUNT(*) AS n FROM trades GROUP BY symbol ORDER BY COUNT(*) DESC, symbol
SELECT symbol, COUNT(*) AS n FROM trades GROUP BY symbol ORDER BY n + 1, symbol DESC
SELECT id FROM trades ORDER BY ts, id
SELECT id FROM trades ORDER BY note DESC, ok, fee, id
SELECT id FROM trades ORDER BY lot * 2, 1 LIMIT 9

-- Expressions
SELECT id, lot / tiny AS a FROM trades WHERE tiny <> 0
SELECT id, lot / tiny AS a FROM trades
SELECT id, fee / 3 AS a, fee * fee AS b, fee + lot AS c, wide * fee AS d, wide / 7 AS e, fee % 2 AS f, -fee AS g FROM trades
SELECT id, qty * qty AS a FROM trades WHERE id < 10
SELECT id, qty * qty * qty AS a FROM trades
SELECT id, CAST(price AS INT) AS a FROM trades WHERE price BETWEEN -100 AND 1000
SELECT id, CAST(fee AS INT) AS a, CAST(fee AS VARCHAR) AS b, CAST(qty AS DOUBLE) AS c, CAST(ok AS INT) AS d, CAST(day AS TIMESTAMP) AS e, CAST(ts AS DATE) AS f, CAST(lot AS VARCHAR) AS g FROM trades
SELECT id, price > 1 AS a, price >= small AS b, price = small AS c, price <=> small AS d, small < 0.5 AS e FROM trades
SELECT id, symbol < 'N' AS a, symbol || '-' || lot AS b, LENGTH(symbol) AS c, UPPER(symbol) AS d, SUBSTRING(symbol, 2, 2) AS e, symbol LIKE 'A%' AS f, REVERSE(symbol) AS g FROM trades
SELECT id, YEAR(ts) AS a, DAYOFWEEK(day) AS b, WEEKOFYEAR(day) AS c, DATE_TRUNC('WEEK', ts) AS d, HOUR(ts) AS e, SECOND(ts) AS f, WEEKDAY(day) AS g, DAYOFYEAR(day) AS h, ts + INTERVAL '1' DAY AS i FROM trades
SELECT id, COALESCE(lot, tiny) AS a, NULLIF(lot, 1) AS b, GREATEST(price, small) AS c, LEAST(price, lot) AS d, IF(ok, lot, fee) AS e FROM trades
SELECT id, ok AND lot > 1 AS a, ok OR lot > 1 AS b, NOT ok AS c, ok IS TRUE AS d, lot IN (1, NULL) AS e, lot NOT IN (1, 3) AS f FROM trades
SELECT id, tags[0] AS a FROM trades WHERE id % 4 > 1
SELECT id, tags, pair, pair.b AS b, note FROM trades
SELECT id FROM trades WHERE lot <> 1 AND qty / (lot - 1) > 0
SELECT id AS a, a + 1 AS b, b * 2 AS c FROM trades
SELECT 1 AS a, 'x' AS b, 1.5 AS c, CAST(NULL AS DATE) AS d, TIMESTAMP '1969-12-31 23:59:59.5' AS e, 1e0 AS f, X'00ff' AS g, 3000000000 AS h
SELECT COUNT(*) AS n FROM trades WHERE symbol = ''

-- More of the same, where engines like to differ
SELECT symbol, SUM(price) AS s, AVG(price) AS a FROM trades WHERE price < 1000 GROUP BY symbol
SELECT SUM(price) AS s, AVG(price) AS a, MAX(price) AS m FROM trades
SELECT lot, AVG(wide) AS a, SUM(wide * 3) AS b, MAX(wide) - MIN(wide) AS c FROM trades GROUP BY lot
SELECT id, ROUND(price, 1) AS a, ROUND(fee, 1) AS b, CEIL(fee) AS c, FLOOR(price) AS d, ABS(fee) AS e, SIGN(price) AS f, SQRT(price) AS g FROM trades WHERE price < 1000
SELECT id, CAST(price AS DECIMAL(12, 3)) AS a FROM trades WHERE price < 1000
SELECT id, ts - INTERVAL '1 day 2 hours' AS a, DATE_TRUNC('MONTH', day) AS b, EXTRACT(QUARTER FROM ts) AS c, day + 31 AS d FROM trades
SELECT id FROM trades WHERE ts BETWEEN '2025-12-31' AND '2026-01-01 00:00:30' AND day > DATE '2024-03-01' ORDER BY id
SELECT id, CASE lot WHEN 1 THEN 'one' WHEN 2 THEN 'two' END AS a, CASE WHEN ok THEN fee ELSE qty END AS b FROM trades
SELECT id, CONCAT(symbol, lot, ok) AS a, REPLACE(symbol, 'A', 'xy') AS b, LEFT(symbol, 2) AS c, TRIM(symbol) AS d, LOWER(symbol) AS e, STARTSWITH(symbol, 'AA') AS f, symbol ILIKE '%p_' AS g FROM trades
SELECT TRY_CAST(symbol AS INT) AS a, TRY_CAST(price AS TINYINT) AS b FROM trades
SELECT CAST(symbol AS INT) AS a FROM trades
SELECT CAST(qty AS INT) * 1000 AS a FROM trades
SELECT tiny + CAST(126 AS TINYINT) AS a FROM trades
SELECT -lot AS a, -price AS b, -tiny AS c, lot DIV 2 AS d, lot % 2 AS e, qty % -7 AS f, price % 2 AS g FROM trades WHERE price < 1000
SELECT t.symbol, COUNT(v.venue) AS n, COUNT(*) AS m FROM trades AS t LEFT JOIN venues AS v USING (symbol) GROUP BY t.symbol
SELECT COALESCE(s.symbol, v.symbol) AS k, COUNT(*) AS n FROM symbols AS s FULL OUTER JOIN venues AS v ON s.symbol = v.symbol GROUP BY COALESCE(s.symbol, v.symbol)
SELECT a.id, b.id AS c FROM trades AS a LEFT JOIN trades AS b ON a.price = b.price AND a.id < b.id WHERE a.id < 12
SELECT a.symbol, b.name, c.venue FROM symbols AS a JOIN symbols AS b ON a.rank = b.rank LEFT JOIN venues AS c ON b.symbol = c.symbol
SELECT symbol FROM symbols WHERE rank = (SELECT MAX(rank) FROM symbols) OR rate IN (SELECT price FROM trades)
SELECT t.symbol, t.id FROM trades AS t WHERE t.qty = (SELECT MAX(u.qty) FROM trades AS u WHERE u.symbol <=> t.symbol)
SELECT symbol, SUM(lot) AS s FROM trades AS t GROUP BY symbol HAVING SUM(lot) > (SELECT AVG(lot) FROM trades)
SELECT x.symbol, x.n FROM (SELECT symbol, COUNT(*) AS n FROM trades GROUP BY symbol UNION ALL SELECT symbol, rank FROM symbols) AS x WHERE x.n > 1
WITH a AS (SELECT 1 AS x), b AS (SELECT x + 1 AS x FROM a) SELECT a.x, b.x AS y FROM a, b
WITH a AS (SELECT lot AS x FROM trades WHERE id < 3) SELECT x FROM a UNION ALL (WITH a AS (SELECT 7 AS x) SELECT x FROM a)
SELECT * FROM (SELECT symbol FROM symbols ORDER BY symbol LIMIT 2) UNION ALL (SELECT venue FROM venues ORDER BY venue DESC LIMIT 1)
SELECT symbol FROM symbols UNION (SELECT symbol FROM venues INTERSECT SELECT symbol FROM trades)
SELECT id, SUM(price) OVER (PARTITION BY lot ORDER BY id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS a, MAX(price) OVER (PARTITION BY ok ORDER BY id ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS b FROM trades WHERE price < 1000
SELECT id, COUNT(lot) OVER (PARTITION BY symbol, ok ORDER BY day DESC NULLS FIRST, id) AS a, AVG(lot) OVER (PARTITION BY symbol) AS b, STDDEV(lot) OVER (PARTITION BY ok) AS c FROM trades
SELECT id, LAG(symbol, 2, 'none') OVER (ORDER BY id) AS a, LEAD(ts) OVER (PARTITION BY symbol ORDER BY id) AS b, LAG(day, 0) OVER (ORDER BY id) AS c FROM trades
SELECT symbol, window_start AS s, COUNT(*) AS n, RANK() OVER (PARTITION BY symbol ORDER BY COUNT(*) DESC, window_start) AS r FROM trades GROUP BY symbol, TUMBLE(ts, INTERVAL '1 minute')
-- spark: SELECT symbol, s, n, RANK() OVER (PARTITION BY symbol ORDER BY n DESC, s) AS r FROM (SELECT symbol, window.start AS s, COUNT(*) AS n FROM trades GROUP BY symbol, window(ts, '1 minute'))
SELECT price, window_end AS e, MAX(id) AS m FROM trades GROUP BY price, HOP(ts, INTERVAL '40 seconds', INTERVAL '90 seconds')
-- spark: SELECT price, window.end AS e, MAX(id) AS m FROM trades GROUP BY price, window(ts, '90 seconds', '40 seconds')
SELECT price, window_start AS s, COLLECT_LIST(id) AS l FROM trades GROUP BY price, SESSION(ts, INTERVAL '40 seconds')
-- spark: SELECT price, session_window.start AS s, transform(array_sort(collect_list(struct(_lsn, id))), x -> x.id) AS l FROM trades GROUP BY price, session_window(ts, '40 seconds')
SELECT lot, MIN_BY(price, ts) AS a, MAX_BY(symbol, price) AS b FROM trades WHERE price BETWEEN 1 AND 50 GROUP BY lot
SELECT DISTINCT pair.b AS b, tiny > 0 AS p FROM trades ORDER BY p DESC, b
SELECT COUNT(*) AS n, MIN(id) AS m FROM trades WHERE FALSE
SELECT symbol, COUNT(*) AS n FROM trades WHERE FALSE GROUP BY symbol
SELECT 1 AS one FROM trades GROUP BY symbol
SELECT symbol, lot, COUNT(*) AS n FROM trades GROUP BY symbol, lot ORDER BY n DESC, symbol, lot LIMIT 4
SELECT id FROM trades WHERE NOT (ok AND lot > 1) ORDER BY id DESC
SELECT symbol FROM symbols UNION SELECT symbol FROM venues INTERSECT SELECT symbol FROM trades
SELECT symbol FROM symbols INTERSECT SELECT symbol FROM trades UNION ALL SELECT venue FROM venues
SELECT symbol FROM trades EXCEPT SELECT symbol FROM venues UNION SELECT venue FROM venues
SELECT s.symbol, v.venue FROM symbols AS s LEFT JOIN venues AS v
SELECT symbol, a.name, c.venue FROM symbols AS a JOIN venues AS b USING (symbol) RIGHT JOIN (SELECT venue, big FROM venues) AS c ON a.rank = c.big
SELECT ok, COLLECT_SET(lot) AS a, COLLECT_SET(symbol) AS b, COLLECT_SET(fee) FILTER (WHERE fee > 2) AS c FROM trades GROUP BY ok
-- spark: SELECT ok, array_sort(collect_set(lot)) AS a, array_sort(collect_set(symbol)) AS b, array_sort(collect_set(fee) FILTER (WHERE fee > 2)) AS c FROM trades GROUP BY ok
