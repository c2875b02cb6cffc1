"""What the source and the sink of Kafka share: clients, schema registry, Avro, Debezium.

Takes: settings of a connector, records.
Gives: clients of librdkafka, rows, errors of ours in place of the driver's.
Never knows: the log, statements.
"""
