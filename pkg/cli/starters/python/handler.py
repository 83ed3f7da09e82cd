def main(event, context):
    return f"hello {event['data'].get('name', 'world')}"
