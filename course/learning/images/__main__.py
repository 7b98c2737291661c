"""`python -m course.learning.images stage DIR`."""

from course.learning.images.staging import main

if __name__ == "__main__":
    main()
